"""The command stream."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from ..errors import UserError
from .console import print_error, print_lines
from .options import Decimal, EncoderFactory, Folder, Sep, TimeColumn, event, import_encoder
from .outputs import check_outputs

if TYPE_CHECKING:
    from ..person.session import Session
    from ..person.stream.sink import Sink


def stream(
    folder: Folder,
    source: Annotated[str | None, Option(help="lsl:NAME, a .npz of one subject, or an .xdf (?stream=NAME).")] = None,
    out: Annotated[str | None, Option(help="lsl:NAME or a .csv file (default: stdout); with --replay .json.")] = None,
    hop: Annotated[float | None, Option(help="Seconds between windows; default: half a window.")] = None,
    filter: Annotated[str, Option(help="Band in Hz, such as 5-45; auto: filter of the model; none.")] = "auto",
    notch: Annotated[list[float] | None, Option(help="Power-line frequency in Hz; repeatable.")] = None,
    seconds: Annotated[float | None, Option(help="End after this many seconds; default: all.")] = None,
    session: Annotated[Path | None, Option(help="File of the online session: read if it exists, then saved.")] = None,
    adapt: Annotated[bool, Option("--adapt", help="Adapt to the subject's unlabeled windows.")] = False,
    by_position: Annotated[bool, Option("--by-position", help="Ignore the names of channels.")] = False,
    rest: Annotated[str | None, event("The class without action.")] = None,
    threshold: Annotated[float | None, event("Minimum probability for a window to vote; default: 0.5.")] = None,
    debounce: Annotated[str, event("N/M: N of the last M windows must vote for a class; or seconds, 0.4s.")] = "1/1",
    refractory: Annotated[float, event("Seconds after an activation in which no other class becomes active.")] = 0.0,
    replay: Annotated[str | None, event("Recordings with events in place of --source.")] = None,
    events: Annotated[str | None, event("With --replay: events and their classes, T1=left,T2=right.")] = None,
    pattern: Annotated[str | None, event("With --replay: pattern of file names, '{subject}/*.csv'.")] = None,
    sfreq: Annotated[float | None, event("Sampling rate in Hz of files without one.")] = None,
    sep: Sep = None,
    decimal: Decimal = None,
    time_column: TimeColumn = None,
    encoder: EncoderFactory = "eegnet",
) -> None:
    """Decode the signals of one subject as they arrive, until the source ends or Ctrl-C.

    With --replay, replay recordings with events and score the detected events.
    """
    import torch

    from ..person.session import Session
    from ..person.stream.run import check_hop, choose_filter
    from ..person.stream.sink import open_sink

    if (source is None) == (replay is None):
        raise UserError("give either --source, a stream or a file, or --replay, recordings with events")
    if source is None and (session is not None or seconds is not None):
        raise UserError("--session and --seconds are not available with --replay; leave them out")
    if source is not None and (events is not None or pattern is not None):
        raise UserError("--events and --pattern need --replay; leave them out, or give --replay in place of --source")
    check_hop(hop)
    encoders = import_encoder(encoder)
    torch.set_num_threads(1)  # more threads would slow down single windows
    check_outputs(source, folder, session=session)  # the session is saved at the end
    if session is not None and session.exists():  # a saved session keeps its own settings
        person = Session.load(session, folder, encoders=encoders)
    else:
        person = Session(folder, adapt=adapt, encoders=encoders)
    filtered = choose_filter(filter, notch or [], person.model.card.filter)
    options: dict[str, Any] = {"hop": hop, "filtered": filtered, "by_position": by_position}
    least = 0.5 if threshold is None else threshold
    rule: dict[str, Any] = {"rest": rest, "threshold": least, "debounce": debounce, "refractory": refractory}
    if replay is not None:
        written = {"pattern": pattern, "sfreq": sfreq, "sep": sep, "decimal": decimal, "time_column": time_column}
        _replay(person, replay, events, written, rule, out, options)
    elif source is not None:
        detects = (rest, threshold, debounce, refractory) != (None, None, "1/1", 0.0)
        sink = partial(open_sink, out, person.classes_.tolist(), str(folder), events=detects)
        _decode(person, source, sfreq, rule if detects else None, sink, session, seconds, options)


def _decode(
    person: Session, source: str, sfreq: float | None, rule: dict[str, Any] | None, sink_of: Callable[[], Sink],
    kept: Path | None, seconds: float | None, options: dict[str, Any],
) -> None:  # fmt: skip
    """Decode a source until it ends, with events if `rule` has options of a detector; `kept` saves the session."""
    from ..person.events import EventDetector, parse_debounce
    from ..person.stream.run import Stream
    from ..person.stream.source import open_source

    if seconds is not None and not seconds > 0:
        raise UserError(f"--seconds is {seconds:g}; give a positive number")
    with closing(open_source(source, sfreq)) as samples:
        decoded = Stream(person, samples, tell=print_error, **options)
        if rule is not None:
            debounce = parse_debounce(rule["debounce"], decoded.hop)
            decoded.detector = EventDetector(person.classes_.tolist(), **rule | {"debounce": debounce})
        with closing(sink_of()) as sink:
            for text in decoded.describe():
                print_error(text)
            try:
                decoded.run(sink, seconds)
            finally:  # the session is saved after an error, too
                try:
                    if kept is not None:
                        person.save(kept)
                finally:
                    print_error(str(decoded.summary))


def _replay(
    person: Session, source: str, events: str | None, written: dict[str, Any], rule: dict[str, Any], out: str | None,
    options: dict[str, Any],
) -> None:  # fmt: skip
    """Replay recordings of several subjects, each in a new session like `person`; `written` describes their files."""
    from ..files import write_atomically
    from ..person.events import EventDetector, map_events
    from ..person.session import Session
    from ..person.stream.replay import replay
    from ..recordings import Cutting
    from ..recordings.cutting import parse_events
    from ..recordings.whole import read_whole

    if out is not None and not out.lower().endswith(".json"):
        raise UserError(f"--out is {out!r}, but --replay writes JSON; give a .json file, or leave --out out")
    check_outputs(source, out=None if out is None else Path(out))
    mapping, classes = parse_events(events), person.classes_.tolist()
    EventDetector(classes, **rule | {"debounce": (1, 1)})  # raises before recordings are read
    map_events((), mapping, classes, rule["rest"], 0.0)
    recordings = read_whole(source, Cutting.from_options(**written))

    def begin() -> Session:
        return Session(person.model, adapt=person.adapts)

    report = replay(recordings, begin, events=mapping, **rule, **options)
    print_lines(*report.lines())
    for warning in report.seen:
        print_error(warning)
    if out is not None:
        write_atomically(Path(out), report.json())
        print_lines(f"scores: {out}")
