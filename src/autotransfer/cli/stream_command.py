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
from .options import Decimal, EncoderFactory, Folder, Number, Sep, Text, TimeColumn, import_encoder
from .outputs import check_outputs

if TYPE_CHECKING:
    from ..person.session import Session
    from ..person.stream.sink import Sink
    from ..person.stream.source import Source
    from ..recordings.filters import Filter


def _event(help: str) -> Any:
    return Option(help=help, rich_help_panel="Events")


def stream(
    folder: Folder,
    source: Annotated[Text, Option(help="lsl:NAME, a .npz file of one subject, or FILE.xdf?stream=NAME.")] = None,
    out: Annotated[Text, Option(help="lsl:NAME or a .csv file; default: stdout. With --replay: a .json file.")] = None,
    hop: Annotated[Number, Option(help="Seconds between windows; default: half a window.")] = None,
    filter: Annotated[str, Option(help="Band in Hz, such as 5-45; auto: as for training; none: no filter.")] = "auto",
    notch: Annotated[list[float] | None, Option(help="Power-line frequency in Hz to remove; several allowed.")] = None,
    seconds: Annotated[Number, Option(help="Seconds after which to stop; default: when the source ends.")] = None,
    session_file: Annotated[Path | None, Option("--session", help="Online session file; loaded and saved.")] = None,
    adapt: Annotated[bool, Option("--adapt", help="Adapt to the subject's unlabeled windows.")] = False,
    by_position: Annotated[bool, Option("--by-position", help="Match channels by position instead of name.")] = False,
    rest: Annotated[Text, _event("Class that means no action, such as rest.")] = None,
    threshold: Annotated[Number, _event("Minimum probability of a class for an event; default: .5.")] = None,
    debounce: Annotated[str, _event("N/M: an event needs N of the last M windows; or a duration: 0.4s.")] = "1/1",
    refractory: Annotated[float, _event("Seconds after an event in which no other class can start an event.")] = 0.0,
    replay: Annotated[Text, _event("Recordings with events to replay and score, instead of --source.")] = None,
    events: Annotated[Text, _event("With --replay: classes of events, such as T1=left,T2=right.")] = None,
    pattern: Annotated[Text, _event("With --replay: pattern of file names, such as '{subject}/*.csv'.")] = None,
    sfreq: Annotated[Number, _event("Sampling rate in Hz, for files that do not contain it.")] = None,
    sep: Sep = None,
    decimal: Decimal = None,
    time_column: TimeColumn = None,
    encoder: EncoderFactory = "eegnet",
) -> None:
    """Predict classes from the signals of one subject as they arrive, until the source ends or Ctrl-C is pressed.

    With --replay, replay recordings with events and score the detected events.
    """
    import torch

    from ..person.session import Session
    from ..person.stream.run import check_hop, choose_filter
    from ..person.stream.sink import open_sink

    if (source is None) == (replay is None):
        raise UserError("give either --source, a stream or a file, or --replay, recordings with events")
    if source is None and (session_file is not None or seconds is not None):
        raise UserError("--session and --seconds are not available with --replay; leave them out")
    if source is not None and (events is not None or pattern is not None):
        raise UserError("--events and --pattern need --replay; leave them out, or give --replay instead of --source")
    check_hop(hop)
    encoders = import_encoder(encoder)
    torch.set_num_threads(1)  # more threads would slow down single windows
    decisions = None if out is None or out.startswith("lsl:") or replay is not None else Path(out)
    check_outputs(out=(decisions, ""), session=(session_file, ""))
    if session_file is not None and session_file.exists():  # --adapt has no effect on a saved session
        session = Session.load(session_file, folder, encoders=encoders)
    else:
        session = Session(folder, adapt=adapt, encoders=encoders)
    choose = partial(choose_filter, filter, notch or [], session.model.card.signal.filter)
    options: dict[str, Any] = {"hop": hop, "filtered": choose(None), "by_position": by_position}
    has_events = (rest, threshold, debounce, refractory) != (None, None, "1/1", 0.0)
    least = 0.5 if threshold is None else threshold
    detector: dict[str, Any] = {"rest": rest, "threshold": least, "debounce": debounce, "refractory": refractory}
    if replay is not None:
        reading = {"pattern": pattern, "sfreq": sfreq, "sep": sep, "decimal": decimal, "time_column": time_column}
        _replay(session, replay, events, reading, detector, out, options)
    elif source is not None:
        sink = partial(open_sink, out, session.classes_.tolist(), str(folder), events=has_events)
        _decode(session, source, sfreq, choose, detector if has_events else None, sink, session_file, seconds, options)


def _decode(
    session: Session, source: str, sfreq: float | None, choose: Callable[[Source], Filter | None],
    detector: dict[str, Any] | None, make_sink: Callable[[], Sink], session_file: Path | None, seconds: float | None,
    options: dict[str, Any],
) -> None:  # fmt: skip
    """Decode a source until it ends, detect events if `detector` is given, and save the session to a file."""
    from ..person.events import EventDetector, parse_debounce
    from ..person.stream.run import Stream
    from ..person.stream.source import open_source

    if seconds is not None and not seconds > 0:
        raise UserError(f"--seconds is {seconds:g}; give a positive number")
    with closing(open_source(source, sfreq)) as samples:
        decoder = Stream(session, samples, tell=print_error, **options | {"filtered": choose(samples)})
        if detector is not None:
            debounce = parse_debounce(detector["debounce"], decoder.hop)
            decoder.detector = EventDetector(session.classes_.tolist(), **detector | {"debounce": debounce})
        with closing(make_sink()) as sink:
            for line in decoder.describe():
                print_error(line)
            try:
                decoder.run(sink, seconds)
            finally:  # the session is saved after an error, too
                try:
                    if session_file is not None:
                        session.save(session_file)
                finally:
                    print_error(str(decoder.summary))


def _replay(
    session: Session, source: str, events: str | None, reading: dict[str, Any], detector: dict[str, Any],
    out: str | None, options: dict[str, Any],
) -> None:  # fmt: skip
    """Replay recordings of several subjects, each in a new session with the model of `session`.

    reading: options for reading files; detector: options of the event detector; options: further options of `replay`
    """
    from ..files import write_atomically
    from ..person.events import EventDetector, map_events
    from ..person.session import Session
    from ..person.stream.replay import replay
    from ..recordings import Cutting
    from ..recordings.cutting import parse_events
    from ..recordings.sources import read_whole

    if out is not None and not out.lower().endswith(".json"):
        raise UserError(f"--out is {out!r}, but --replay writes JSON; give a .json file, or leave --out out")
    check_outputs(out=(None if out is None else Path(out), r'{\s+"rest": '))
    mapping, classes = parse_events(events), session.classes_.tolist()
    EventDetector(classes, **detector | {"debounce": (1, 1)})  # raises before recordings are read
    map_events((), mapping, classes, detector["rest"], 0.0)
    recordings = read_whole(source, Cutting(**reading))

    def make_session() -> Session:
        return Session(session.model, adapt=session.adapts)

    report = replay(recordings, make_session, events=mapping, **detector, **options)
    print_lines(*report.lines())
    for warning in report.seen:
        print_error(warning)
    if out is not None:
        write_atomically(Path(out), report.json())
        print_lines(f"scores: {out}")
