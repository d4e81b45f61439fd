"""What can keep a single run from being made on a machine."""

from deltawire import DeltawireError

from lab.data.images import DataError
from lab.papers.fastsgd.trainings import TrainingFailed
from lab.ranks.launcher import RanksFailed
from lab.ranks.namespaces import NamespaceError

FAILURES = (DataError, NamespaceError, RanksFailed, TrainingFailed, DeltawireError)
