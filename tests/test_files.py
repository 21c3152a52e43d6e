"""Files are whole or not there, after a power cut too."""

import errno
import os
import stat

import pytest

from fernn._files import written_whole


def test_the_folder_is_synced_after_the_move(tmp_path, monkeypatch):
    done, replace, fsync = [], os.replace, os.fsync

    def synced(number):
        fsync(number)
        done.append("folder" if stat.S_ISDIR(os.fstat(number).st_mode) else "file")

    def moved(one, other):
        replace(one, other)
        done.append("move")

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", moved)
    with written_whole(tmp_path / "a.txt") as part:
        part.write_text("a")
    assert done == ["file", "move", "folder"]
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize(("number", "raises"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_a_file_system_may_not_sync_folders_but_may_not_fail(number, raises, tmp_path, monkeypatch):
    fsync = os.fsync

    def synced(opened):
        if stat.S_ISDIR(os.fstat(opened).st_mode):
            raise OSError(number, os.strerror(number))
        fsync(opened)

    monkeypatch.setattr(os, "fsync", synced)

    def write():
        with written_whole(tmp_path / "a.txt") as part:
            part.write_text("a")

    if raises:
        with pytest.raises(OSError, match=r"a\.txt"):
            write()
    else:
        write()


def test_a_link_stays_and_its_file_is_written(tmp_path):
    (tmp_path / "kept").mkdir()
    kept, link = tmp_path / "kept" / "file", tmp_path / "link"
    kept.write_text("old")
    link.symlink_to(kept)
    with written_whole(link) as part:
        part.write_text("new")
    assert link.is_symlink()
    assert kept.read_text() == "new"
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["file", "kept", "link"]


def test_a_full_disk_names_the_file_that_was_to_be_written(tmp_path):
    path, named = tmp_path / "a.txt", r"No space left on device: .*a\.txt'$"
    with pytest.raises(OSError, match=named) as caught, written_whole(path):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert caught.value.errno == errno.ENOSPC
    assert not [*tmp_path.iterdir()]
    path = tmp_path / "nowhere" / "a.txt"
    with pytest.raises(FileNotFoundError, match=r"nowhere/a\.txt'$"), written_whole(path):
        pass
