"""Files appear whole or not at all."""

import os

import pytest

from rollmake.edge.files import break_link, publish, replacing, replacing_all, write_atomic


def test_a_file_is_replaced_when_the_block_ends_and_parents_are_made(tmp_path):
    path = tmp_path / "a" / "b" / "file"
    with replacing(path) as file:
        file.write(b"new")
        assert not path.exists()
    assert path.read_bytes() == b"new"
    assert [p.name for p in path.parent.iterdir()] == ["file"]


def test_a_block_that_fails_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "file"
    write_atomic(path, b"old")
    with pytest.raises(KeyboardInterrupt), replacing(path) as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_publishing_links_and_breaking_the_link_copies(tmp_path):
    source, target = tmp_path / "source", tmp_path / "out" / "target"
    source.write_bytes(b"content")
    publish(source, target)
    assert target.samefile(source)
    break_link(source)
    assert not target.samefile(source)
    assert (source.read_bytes(), target.read_bytes()) == (b"content", b"content")
    inode = source.stat().st_ino
    break_link(source)
    assert source.stat().st_ino == inode, "a file with one name stays"


def test_publishing_over_a_leftover_of_a_killed_job(tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"content")
    (tmp_path / f".target.{os.getpid()}.tmp").write_bytes(b"leftover")
    publish(source, target)
    assert target.read_bytes() == b"content"


def test_files_that_belong_together_appear_together_or_not_at_all(tmp_path):
    paths = [tmp_path / "new" / name for name in "abc"]
    with replacing_all(paths) as files:
        for path, file in zip(paths, files, strict=True):
            file.write(path.name.encode())
        assert not any(path.exists() for path in paths)
    assert [path.read_bytes() for path in paths] == [b"a", b"b", b"c"]
    with pytest.raises(OSError, match="full"), replacing_all(paths) as files:
        files[0].write(b"other")
        raise OSError("full")
    assert sorted(path.name for path in paths[0].parent.iterdir()) == ["a", "b", "c"]
    assert paths[0].read_bytes() == b"a"
