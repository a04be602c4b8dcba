from .errors import *
from .submitter import Pending, Submitter
from .wire import RawJSON
