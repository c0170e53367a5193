"""A bounded memory of traces."""

from concurrent.futures import ThreadPoolExecutor

from pullback.ensemble.kept import Kept


def test_the_least_recently_used_makes_room():
    kept = Kept(size=2)
    kept.put("a", 1)
    kept.put("b", 2)
    assert kept.get("a") == 1
    kept.put("c", 3)
    assert [kept.get(key) for key in "abc"] == [1, None, 3]


def test_no_key_has_no_value():
    assert Kept().get(None) is None


def test_from_several_threads():
    kept = Kept(size=3)

    def use(i):
        kept.put(i % 7, i)
        return kept.get(i % 5)

    with ThreadPoolExecutor(8) as pool:
        values = list(pool.map(use, range(2000)))
    assert all(value is None or isinstance(value, int) for value in values)
