"""A function that does something begins with a verb: then it can be searched for and read aloud."""

from tests.sources import function_names


def test_names_are_not_participles_or_prepositions() -> None:
    functions = list(function_names.find_functions())
    participles = [f for f in functions if function_names.begins_with_participle(f.name)]
    assert len(participles) < 0.005 * len(functions), "\n".join(map(str, participles))
    prepositions = [f for f in functions if function_names.is_preposition(f.name)]
    assert not prepositions, "\n".join(map(str, prepositions))
