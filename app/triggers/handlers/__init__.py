"""The handler of each command. A command is its entry in `app.triggers.commands` and its handler here."""

from typing import Final

from app.triggers.commands import Verb
from app.triggers.handlers.base import CommandHandler
from app.triggers.handlers.ci import CI
from app.triggers.handlers.fix import ASK, FIX, REVISE, STEER
from app.triggers.handlers.lessons import FORGET, REMEMBER
from app.triggers.handlers.plan import APPROVE, PLAN
from app.triggers.handlers.rebase import REBASE
from app.triggers.handlers.reproduce import REPRODUCE
from app.triggers.handlers.resume import CONTINUE
from app.triggers.handlers.retry import ALLOW, RETRY
from app.triggers.handlers.status import HELP, STATUS
from app.triggers.handlers.stop import STOP
from app.triggers.handlers.verify import VERIFY

HANDLERS: Final[dict[Verb, CommandHandler]] = {
    "fix": FIX,
    "steer": STEER,
    "revise": REVISE,
    "ask": ASK,
    "verify": VERIFY,
    "plan": PLAN,
    "reproduce": REPRODUCE,
    "approve": APPROVE,
    "stop": STOP,
    "status": STATUS,
    "help": HELP,
    "retry": RETRY,
    "allow": ALLOW,
    "continue": CONTINUE,
    "rebase": REBASE,
    "ci": CI,
    "remember": REMEMBER,
    "forget": FORGET,
}
