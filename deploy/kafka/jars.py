"""The pinned jars in the user's cache: fetched once, checked against their hashes, never resolved anew."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deploy.kafka.errors import JarError
from deploy.kafka.locks import exclusive
from deploy.kafka.progress import Progress, silent
from schemas.settings import user_cache

VERSION: Final = "4.4.0"
LOCK_FILE: Final = Path(__file__).with_name("jars.toml")
PARALLEL: Final = 4
ATTEMPTS: Final = 3
RETRY_S: Final = 0.5
TIMEOUT_S: Final = 20
SCRATCH: Final = ".fetch-"


@dataclass(frozen=True, slots=True)
class Jar:
    """One pinned file: Maven coordinate group:artifact:version, size in bytes, sha256 in hex."""

    coordinate: str
    size: int
    sha256: str

    @property
    def name(self) -> str:
        _, artifact, version = self.coordinate.split(":")
        return f"{artifact}-{version}.jar"


# Brings one jar into the given empty directory, or finds it elsewhere on this machine, and returns where it lies.
# Raises whatever went wrong.
Fetch = Callable[[Jar, Path], Path]


def default_cache(environ: Mapping[str, str]) -> Path:
    """The user's cache for this version of Kafka, shared by all stacks of that user."""
    return user_cache(environ) / f"kafka-{VERSION}"


def pinned_jars(lock: Path = LOCK_FILE) -> tuple[Jar, ...]:
    """The classpath, in order."""
    table = tomllib.loads(lock.read_text("utf-8"))
    return tuple(Jar(coordinate, row["size"], row["sha256"]) for coordinate, row in table.items())


def fetch_with_jgo(jar: Jar, directory: Path) -> Path:
    """Fetch by jgo: from the local Maven repository, else from those of jgo's configuration, or from jgo's default."""
    from jgo.config import GlobalSettings  # noqa: PLC0415 - an optional package, and slow to import
    from jgo.constants import default_maven_repo  # noqa: PLC0415
    from jgo.maven import MavenContext  # noqa: PLC0415

    context = MavenContext(
        repo_cache=directory,
        local_repos=[default_maven_repo()],
        remote_repos=GlobalSettings.load().repositories or None,
        timeout=TIMEOUT_S,
    )
    return Path(context.create_dependency(jar.coordinate).artifact.resolve())


class JarStore:
    """The directory that holds the pinned jars. A file put there by hand counts, if it has the right name and hash.

    A file's hash is computed at its first use and after any change of its size or time; `verified.json` remembers.
    """

    def __init__(self, directory: Path, jars: Sequence[Jar], fetch: Fetch = fetch_with_jgo) -> None:
        self.directory = directory
        self._jars = jars
        self._fetch = fetch

    def ensure(self, progress: Progress = silent) -> tuple[Path, ...]:
        """All jars, verified, in classpath order; what is missing is fetched. Several processes may do so at once.

        Raises JarError naming the file with a wrong hash, or the files that are missing and where to put them.
        """
        if not self._all_verified():
            with exclusive(self.directory / ".lock"):
                for left_over in self.directory.glob(f"{SCRATCH}*"):
                    shutil.rmtree(left_over, ignore_errors=True)
                verified = self._verified()
                missing = [jar for jar in self._jars if not self._check_present(jar, verified)]
                if missing:
                    self._fetch_all(missing, progress)
                self._remember()
        return tuple(self.directory / jar.name for jar in self._jars)

    def _verified(self) -> dict[str, list[int]]:
        try:
            content = json.loads((self.directory / "verified.json").read_bytes())
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}

    def _remember(self) -> None:
        content = {jar.sha256: _stamp(self.directory / jar.name) for jar in self._jars}
        new = self.directory / ".verified.json"
        new.write_text(json.dumps(content), "utf-8")
        new.replace(self.directory / "verified.json")

    def _all_verified(self) -> bool:
        verified = self._verified()
        try:
            return all(verified.get(jar.sha256) == _stamp(self.directory / jar.name) for jar in self._jars)
        except FileNotFoundError:
            return False

    def _check_present(self, jar: Jar, verified: Mapping[str, list[int]]) -> bool:
        path = self.directory / jar.name
        if not path.exists():
            return False
        if verified.get(jar.sha256) != _stamp(path):
            _check_hash(jar, path)
        return True

    def _fetch_all(self, missing: Sequence[Jar], progress: Progress) -> None:
        done, total = 0, sum(jar.size for jar in missing)
        progress(done, total, missing[0].name)
        pool = ThreadPoolExecutor(PARALLEL, thread_name_prefix="jars")
        with tempfile.TemporaryDirectory(dir=self.directory, prefix=SCRATCH, ignore_cleanup_errors=True) as scratch:
            try:
                futures = {pool.submit(self._fetch_one, jar, Path(scratch)): jar for jar in missing}
                for future in as_completed(futures):
                    future.result()
                    done += futures[future].size
                    progress(done, total, futures[future].name)
            finally:
                pool.shutdown(cancel_futures=True)

    def _fetch_one(self, jar: Jar, scratch: Path) -> None:
        for attempt in range(ATTEMPTS):
            # A fresh place each time: a half file of a broken attempt must not pass for the jar.
            place = Path(tempfile.mkdtemp(dir=scratch))
            try:
                came = self._fetch(jar, place)
                break
            except Exception as error:
                if attempt + 1 == ATTEMPTS:
                    raise self._cannot_fetch(jar, error) from error
                time.sleep(RETRY_S * 2**attempt)
        _check_hash(jar, came)
        if not came.is_relative_to(scratch):
            came = Path(shutil.copyfile(came, place / jar.name))
        came.replace(self.directory / jar.name)

    def _cannot_fetch(self, jar: Jar, error: Exception) -> JarError:
        missing = [jar for jar in self._jars if not (self.directory / jar.name).exists()]
        return JarError(
            f"the pinned jars cannot be fetched; {jar.coordinate} failed with: {str(error) or type(error).__name__}\n"
            f"If this machine has no network, fetch these {len(missing)} files on another from a Maven repository,\n"
            f"put them into {self.directory} and start again\n"
            f"(Maven coordinate, file name, sha256):\n"
            + "\n".join(f"  {jar.coordinate}  {jar.name}  {jar.sha256}" for jar in missing)
        )


def _stamp(path: Path) -> list[int]:
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns]


def _check_hash(jar: Jar, path: Path) -> None:
    size = path.stat().st_size
    if size == jar.size:
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        if sha256 == jar.sha256:
            return
        found = f"sha256 {sha256}, expected {jar.sha256}"
    else:
        found = f"{size:,} bytes, expected {jar.size:,}"
    raise JarError(
        f"{path} is not the pinned {jar.coordinate}: {found}. It is damaged or not genuine and will not be used: "
        f"delete it and start again, and ask who runs the repository or mirror if it comes back the same"
    )
