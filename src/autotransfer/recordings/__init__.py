"""Labeled windows of several subjects: their readers, and their validation."""

from .container import Recordings as Recordings
from .cutting import Cutting as Cutting
from .npz import read_npz as read_npz
from .npz import save_npz as save_npz
from .raw import Raw as Raw
from .sources import READERS as READERS
from .sources import is_continuous as is_continuous
from .sources import load as load
from .sources import load_with_targets as load_with_targets
from .sources import make_absolute as make_absolute
from .sources import read as read
from .synthetic import synthetic as synthetic
