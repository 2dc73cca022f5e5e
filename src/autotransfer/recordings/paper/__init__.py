"""The four data sets of the paper, by recipe: source, layout and reader of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..raw import Raw
from .ecog_faces import read_ecog_faces
from .errp import read_errp
from .people import read_asl_emg, read_rsvp

__all__ = ["RECIPES", "Recipe"]


class Recipe(NamedTuple):
    read: Callable[[str], Raw]
    description: str
    source: str
    terms: str
    layout: str


UNCONFIRMED = "cited in the paper without a link; ask its authors for the files"
UNKNOWN_TERMS = "unknown; ask the authors"
ONE_FILE_A_PERSON = (
    "FOLDER/SUBJECT.mat, one per subject (no published layout could be confirmed), with X (windows, channels, "
    "times) and y (windows,), optionally session, sfreq and channels"
)

# Prefix of a source on the command line and in load: how to read what follows it.
RECIPES = {
    "rsvp:": Recipe(
        read_rsvp,
        "EEG of an RSVP speller: 10 people, 16 dry electrodes, 500 ms after each letter; target or not",
        UNCONFIRMED,
        UNKNOWN_TERMS,
        ONE_FILE_A_PERSON + "; y is 0 (non-target) or 1 (target)",
    ),
    "errp:": Recipe(
        read_errp,
        "EEG after a speller's feedback: 16 people, 56 electrodes at 200 Hz, windows of 1.3 s; error or correct",
        "BCI Challenge at NER 2015, kaggle.com/c/inria-bci-challenge: train.zip and TrainLabels.csv (Margaux et al. "
        "2012)",
        "Kaggle's: log in and accept the competition's rules",
        "FOLDER/train/Data_S02_Sess01.csv ... (or in FOLDER itself) and FOLDER/TrainLabels.csv, as unpacked",
    ),
    "asl-emg:": Recipe(
        read_asl_emg,
        "EMG of signing: 10 people, 16 muscles of hand and arm at 1 kHz; 33 gestures, each done 3 times",
        UNCONFIRMED,
        UNKNOWN_TERMS,
        ONE_FILE_A_PERSON + "; y is the gesture, sfreq 1000 unless given",
    ),
    "ecog-faces:": Recipe(
        read_ecog_faces,
        "ECoG while looking at pictures: 14 people, 31 electrodes at 1 kHz, windows of 400 ms; house or face",
        "faces_basic.zip of Miller's library, purl.stanford.edu/zk881ps0522 (Miller 2019, 10.1038/s41562-019-0678-3)",
        "CC BY-SA 4.0; publications repeat the library's ethics statement",
        "FOLDER/data/aa/aa_faceshouses.mat ..., as unpacked; the first 31 electrodes of each subject are used",
    ),
}
