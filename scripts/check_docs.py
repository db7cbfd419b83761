"""Checks that the pages say what the code does; ``--write`` rewrites those that are generated.

Generated: ``docs/cli.md`` from the commands' help and ``docs/bundle.schema.json`` from the records. Checked: links
to files, commands and make targets named in the pages, placeholders left over, the length of ARCHITECTURE.md.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click
import typer.main

ROOT = Path(__file__).resolve().parents[1]
ARCHITECTURE_WORDS = 1100
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


def cli_page() -> str:
    """The reference of all commands, from their help."""
    from harness.cli.app import app

    root = typer.main.get_command(app)
    parts = ["# Commands\n", "Made from the help texts by `make docs`.\n"]
    for path, command in sorted(commands(root).items()):
        context = command.make_context(path, [], resilient_parsing=True, terminal_width=100, max_content_width=100)
        parts += [f"## attnwatch {path}\n", f"```text\n{command.get_help(context).rstrip()}\n```\n"]
    return "\n".join(parts)


def commands(root: object) -> dict[str, click.Command]:
    """All leaf commands by their path."""
    found: dict[str, click.Command] = {}
    for name, command in root.commands.items():  # type: ignore[attr-defined]
        if hasattr(command, "commands"):
            found |= {f"{name} {sub}": c for sub, c in commands(command).items()}
        else:
            found[name] = command
    return found


def generated() -> dict[Path, str]:
    """Pages that are made from the code."""
    import json

    from harness.bundle import bundle_schema

    schema = json.dumps(bundle_schema(), indent=2, sort_keys=True) + "\n"
    return {ROOT / "docs" / "cli.md": cli_page(), ROOT / "docs" / "bundle.schema.json": schema}


def problems() -> list[str]:
    """What is wrong with the pages."""
    from harness.cli.app import app

    found = []
    for path, text in generated().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            found.append(f"{path.relative_to(ROOT)}: not what the code makes; run `make docs`")
    known = commands(typer.main.get_command(app))
    groups = {name.split()[0] for name in known}
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for page in PAGES:
        name, text = page.relative_to(ROOT), page.read_text(encoding="utf-8")
        found += [f"{name}:{line}: the placeholder {word} was never filled in" for line, word in placeholders(text)]
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text):
            if not (page.parent / target).exists():
                found.append(f"{name}: link to {target}, which is not there")
        for word in re.findall(r"(?:^|[`$ ])attnwatch ([a-z][a-z-]+)", text, re.MULTILINE):
            if word in groups or f"attnwatch {word}" not in code_of(text):
                continue
            found.append(f"{name}: no command `attnwatch {word}`")
        for word in re.findall(r"`make ([a-z-]+)", text):
            if word not in targets and not word.startswith("bench-"):
                found.append(f"{name}: no target `make {word}`")
    words = len((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").split())
    if words > ARCHITECTURE_WORDS:
        found.append(f"ARCHITECTURE.md: {words} words; two pages hold {ARCHITECTURE_WORDS}")
    return found


def placeholders(text: str) -> list[tuple[int, str]]:
    """Line and word of what a page was to have filled in, such as ``@@`` NAME ``@@`` without the spaces."""
    return [
        (number, word)
        for number, line in enumerate(text.splitlines(), 1)
        for word in re.findall(r"@@[A-Za-z][A-Za-z0-9_-]*@@", line)
    ]


def code_of(text: str) -> str:
    """What stands in code spans and fences."""
    return "\n".join(re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL))


def main() -> int:
    """Exit code 1 where a page is wrong."""
    if "--write" in sys.argv:
        for path, text in generated().items():
            path.write_text(text, encoding="utf-8")
    found = problems()
    for line in found:
        print(line, file=sys.stderr)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
