"""Process that runs commands one after another and starts Java only once, for ``commands.several``.

Each line of stdin has the arguments of some commands, as JSON. A line of stdout answers it: the status and the output
of each command.
"""

import json
import os
import sys
import tempfile

from seaweedmq.cli import main


def outcome(arguments: list[str]) -> tuple[int | str, str, str]:
    """Return status, stdout and stderr, including those of child processes."""
    own = [os.dup(number) for number in (1, 2)]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        status: int | str = "it did not end"
        try:
            sys.argv = ["seaweedmq", *arguments]
            main.run()
        except SystemExit as ended:
            status = 0 if ended.code is None else ended.code
        except BaseException as error:  # noqa: BLE001 - a process would end with the output of sys.excepthook
            sys.excepthook(type(error), error, error.__traceback__)
            status = 1
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, before in zip((1, 2), own, strict=True):
                os.dup2(before, number)
                os.close(before)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
    return status, texts[0], texts[1]


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps([outcome(arguments) for arguments in json.loads(line)]), flush=True)
