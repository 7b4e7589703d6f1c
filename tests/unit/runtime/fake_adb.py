"""An adb for tests: records every call, keeps a phone's files in a folder, and answers as benchmark_model does.

FAKE_ADB names the folder: `log` (a JSON list a line), `phone/` (the files), `profile` (what benchmark_model prints), `output`
(the bytes that it writes as the model's outputs), `devices` (the lines of `adb devices`).
"""

import json
import os
import re
import shlex
import shutil
import sys
from pathlib import Path

folder = Path(os.environ["FAKE_ADB"])
words = sys.argv[1:]
with (folder / "log").open("a") as log:
    log.write(json.dumps(words) + "\n")


def on_phone(path: str) -> Path:
    return folder / "phone" / path.lstrip("/")


if words == ["devices"]:
    print("List of devices attached\n" + (folder / "devices").read_text())
    raise SystemExit(0)
assert words[0] == "-s"
command, rest = words[2], words[3:]
if command == "push":
    target = on_phone(rest[1])
    if not target.parent.is_dir():
        sys.exit(
            f"adb: error: failed to copy '{rest[0]}' to '{rest[1]}': remote couldn't create file: No such file or directory"
        )
    shutil.copy(rest[0], target)
elif command == "pull":
    shutil.copy(on_phone(rest[0]), rest[1])
elif command == "shell":
    program, *arguments = shlex.split(rest[0].removesuffix(" 2>&1").removesuffix(" || true"))
    if program == "mkdir":
        on_phone(arguments[-1]).mkdir(parents=True)
    elif program == "rm":
        shutil.rmtree(on_phone(arguments[-1]))
    elif program == "getprop":
        known = {
            "ro.product.model": "Pixel 8",
            "ro.build.version.release": "15",
            "ro.product.cpu.abi": "arm64-v8a",
        }
        print(known[arguments[0]])
    elif program.endswith("/benchmark_model"):
        options = dict(argument.removeprefix("--").split("=", 1) for argument in arguments)
        assert on_phone(options["graph"]).is_file()
        for given in options["input_layer_value_files"].split(","):
            file = re.split(r"(?<!\\):", given, maxsplit=1)[1]
            assert on_phone(file).stat().st_size > 0
        text = (folder / "profile").read_text()
        print(text)
        if "Inference timings" in text:
            shutil.copy(folder / "output", on_phone(options["output_filepath"]))
