"""Words that form a question, in English and Chinese. They say nothing about the subject of the question."""

from __future__ import annotations

# These words are not stop words: after, before, during, first, most, all.
_STOP = """
    a about above again also am an and any are as at be because been being between both but by can could did do does
    doing don down each few for from further get got had has have having he her here hers herself him himself his how
    i if in into is it its itself just let many me more much my myself no nor not of off on once only or other our ours
    ourselves out over own please s same she should so some such t than that the their theirs them themselves then
    there these they this those through to too under until up us very was we were what when where which while who whom
    whose why will with would you your yours yourself yourselves ll re ve d m isn aren wasn weren hasn haven hadn doesn
    didn won wouldn shouldn couldn
"""
_TALKING = """
    ask asked asking chat chats conversation conversations discuss discussed discussing discussion discussions mention
    mentioned mentioning recall remember remind said say saying talk talked talking tell telling told
"""
_CHINESE = """
    你还记得 还记得 记得 曾经 告诉过 咨询过 分享过 推荐过 提到过 提到 说过 聊过 聊了 讨论过 谈过
    我们 你们 他们 她们 关于 具体 当时 这天 那天 这部 这本 这幅 最近 什么样 怎么样 为什么 什么
    哪一部 哪两部 哪一个 哪一天 哪个 哪些 哪里 哪天 哪 谁的 多少 多久 几个 几次
    一些 一部 一本 一道 一个 一次 一件 一档 一副 一下 如何 怎么 是不是 对吗 没有 不少 很多
    因此 因为 的时候 时候 它的 他的 她的 名字 给我 给你 和你 和我 向你 与你 你给 我给 请问 能不能 可以
    我 你 他 她 它 的 了 吗 呢 吧 啊 是 在 有 过 曾 和 与 给 向 就 会 要 去 里 上 这 那 请
"""
_OF_US = "our|my|these|the|your|all"
_TIMES = "days|weeks|months|years|hours|times"
_TALKS = "conversations?|chats?|sessions?|messages?|discussions?|questions?|requests?"

STOP = frozenset(_STOP.split())
TALKING = frozenset(_TALKING.split())
"""Words about talking. They are search terms only if no other words remain."""

PHRASES = (
    r"can you|could you|do you (?:still )?(?:remember|know)",
    r"(?:list|walk me through|take me through|go through|tell me)(?= (?:the|in) order\b| how\b)",
    r"(?:the )?order (?:in which|of)(?= i\b| we\b| you\b)",
    r"(?:did|have|had) we (?:decided?|agreed?|settled?|concluded?)(?: about| on| to)?",
    r"in (?:the right |chronological )?order",
    r"br(?:ought|ing) up",
    r"(?:different|various|several) (?:aspects?|kinds?|types?|topics?|parts?)(?: of)?",
    rf"(?:throughout|across|during|in|over) (?:all )?(?:of )?(?:{_OF_US}) (?:previous |past |earlier )?(?:{_TALKS})",
    r"mention only(?: and only)?(?: \w+)? items?",
    r"how (?:many|much|long|often)",
    rf"(?:{_TIMES}) (?:passed|(?:are|were) there|do i have|did it take(?: me)?)(?: between| to)?",
    r"what (?:was|is|were|are) (?:its|his|her|their|the) names?",
)
"""Phrases that only form a question or are about the conversation itself. They are removed only as a whole,
because each of their words can also be the subject of a question."""

CHINESE = "|".join(sorted(_CHINESE.split(), key=len, reverse=True))
"""A pattern for Chinese words that form a question. Longer words come first, so that a shorter word does not
match inside a longer one."""

_TELL = "recommend|suggest|told|tell|taught|teach|g[ai]ve|advis|explain|help|propos|wr[oi]te|show|answer"
ASKS_AGENT = (
    rf"\b(?:did|have|had|do) you\b|\byou (?:once |have |had |ever |already )?(?:{_TELL})"
    r"|你.{0,6}(?:推荐|告诉|教|建议|给|说|介绍|解释|写)|给了我"
)
"""Matches a question about what the agent itself said."""
