"""Write the edited machines again from their tables: ``python tests/machines/write.py [NAME ...]``."""

import sys

from editing import tables, write

if __name__ == "__main__":
    wanted = sys.argv[1:]
    for one in tables():
        if not wanted or one.name in wanted:
            sys.stdout.write(f"{write(one)}\n")
