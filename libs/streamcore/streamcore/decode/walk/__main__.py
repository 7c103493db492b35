"""``python -m streamcore.decode.walk``: compiles the walk, so that no other process has to."""

from __future__ import annotations

from streamcore.decode.walk import arrays, batch, code_folder, compiler, elements, prefixes
from streamcore.decode.walk.binary import decoder
from streamcore.decode.walk.ids import probes
from streamcore.decode.walk.literals import automaton, conditions
from streamcore.decode.walk.totals import running


def main() -> None:
    """Compile what the folder lacks, which importing does, and remove the code of older sources."""
    assert batch.walk_batch is not None
    assert elements.split_values is not None
    assert arrays.find_repeated is not None
    assert prefixes.find_prefix is not None
    assert decoder.BinaryWalk is not None
    assert probes.find_entries is not None
    assert automaton.find_literals is not None
    assert conditions.try_conditions is not None
    assert running.run_longs is not None
    code_folder.remove_others()
    made = ", ".join(compiler.compiled_here)
    print(f"{code_folder.folder()}: " + (f"compiled {made}" if made else "nothing to compile"))  # noqa: T201


if __name__ == "__main__":
    main()
