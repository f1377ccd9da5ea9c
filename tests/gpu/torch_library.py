# SPDX-License-Identifier: Apache-2.0
"""usage: torch_library.py

Builds the backend library of farandole.torch for this interpreter's torch as a user would, unless the package or the user's
cache has one that fits, and imports the package. Ends with 77 and the reason if there is no C++ compiler, no Python.h or no
numpy, or if torch is too old.
"""
import subprocess
import sys
import time

SKIPPED = 77
# From the errors of farandole's _built_library.py and torch/_backend_library.py.
NO_TOOLS = ("there is no C++ compiler to build it with", "To install Python's headers", "Farandole works with torch",
            "No module named 'numpy'")


def main():
    begin = time.monotonic()
    done = subprocess.run([sys.executable, "-m", "farandole.build_ops", "--torch"], capture_output=True, text=True, check=False)
    print(done.stdout + done.stderr)
    if done.returncode != 0:
        if not any(text in done.stderr for text in NO_TOOLS):
            return 1
        print("the backend library cannot be built here: " + " ".join(done.stderr.split()))
        return SKIPPED
    print(f"measured: seconds until the backend library was found or built: {time.monotonic() - begin:.1f}")
    subprocess.run([sys.executable, "-c", "import farandole.torch"], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
