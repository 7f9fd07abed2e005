"""Encoding of the messages of the Blobs service: upload and read streams."""

from seaweedmq.errors import InvalidArgument
from seaweedmq.model.messages import blobs
from seaweedmq.rpc.messages import types
from seaweedmq.rpc.messages.converter import converter_of
from seaweedmq.rpc.messages.oneof import OneofCodec, RequestCodec
from seaweedmq.rpc.v1 import blobs_pb2

_UPLOAD_REQUEST = RequestCodec[blobs.UploadRequest](
    blobs_pb2.UploadRequest,
    {
        "open": blobs.UploadOpen,
        "data": blobs.PartData,
        "part": blobs.PartBegin,
        "end": blobs.PartEnd,
        "finish": blobs.UploadFinish,
    },
)
_UPLOAD_REPLY = OneofCodec[blobs.UploadReply](
    blobs_pb2.UploadReply,
    {
        "found": blobs.PartFound,
        "ready": blobs.UploadReady,
        "stored": blobs.PartStored,
        "done": blobs.UploadDone,
    },
)

encode_upload_request, decode_upload_request = _UPLOAD_REQUEST.encode, _UPLOAD_REQUEST.decode
encode_upload_reply, decode_upload_reply = _UPLOAD_REPLY.encode, _UPLOAD_REPLY.decode

_RANGE = converter_of(blobs.BlobRange, blobs_pb2.ReadRequest)


def encode_range(value: blobs.BlobRange) -> bytes:
    """Encode the request of a range; InvalidArgument if a number is out of the protocol's range."""
    try:
        return _RANGE.write(value).SerializeToString()
    except ValueError as error:
        raise InvalidArgument(f"range of {value.uri} was not requested, {error}: correct the value") from error


def decode_range(data: bytes) -> blobs.BlobRange:
    """Decode the request of a range. Raises as :func:`types.parse`."""
    return _RANGE.read(types.parse(blobs_pb2.ReadRequest, data))


def encode_blob_data(value: blobs.BlobData) -> bytes:
    """Encode bytes of a payload."""
    return blobs_pb2.ReadReply(data=value.data).SerializeToString()


def decode_blob_data(data: bytes) -> blobs.BlobData:
    """Decode bytes of a payload. Raises as :func:`types.parse`."""
    return blobs.BlobData(types.parse(blobs_pb2.ReadReply, data).data)
