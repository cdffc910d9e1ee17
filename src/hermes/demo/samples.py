"""Sample conversations, invented for the demo. They cover every source, several scripts, tools, failures and
costs.

A line of a conversation is `role: text`. `→ tool {arguments}` is a tool call, and `← text` is its result.
"""

from __future__ import annotations

from typing import NamedTuple


class Sample(NamedTuple):
    source: str
    days_ago: float
    title: str | None
    texts: tuple[str, ...]
    model: str = "anthropic/claude-sonnet-4.5"
    tokens: tuple[int, int] | None = (2400, 350)
    """Input and output tokens of each answer; None if the provider did not report them."""
    tags: tuple[str, ...] = ()


def _make_sample(source: str, days_ago: float, title: str | None, *texts: str, **more: object) -> Sample:
    return Sample(source, days_ago, title, texts, **more)  # type: ignore[arg-type]


SAMPLES = (
    _make_sample(
        "cli",
        0.08,
        "refactoring auth",
        "user: Help me refactor the auth module please",
        '→ search_files {"pattern": "def login", "path": "src"}',
        "← src/auth.py:42: def login(user)\nsrc/auth.py:77: def login_token(token)",
        "assistant: There are two entry points with the same checks. I would put both behind one AuthService.",
        "user: What did we decide about the retry budget?",
        "assistant: Five tries with a pause of two seconds, as agreed on Monday; it is in src/main.py:42.",
        "user: Good. Please write the tests first.",
        '→ write_file {"path": "tests/test_auth.py", "content": "def test_login(): ..."}',
        "← created tests/test_auth.py (12 lines)",
        "assistant: Done: 12 lines in tests/test_auth.py, all of them fail, as they should for now.",
        tags=("work",),
    ),
    _make_sample(
        "cli",
        1.2,
        "retry budget for uploads",
        "user: Uploads fail when the network is slow. How many times should we retry?",
        "assistant: Five tries within a budget of 30 seconds cover every outage of last month but one.",
        "user: And the pause between them?",
        "assistant: Two seconds, doubled each time, with a little randomness so that clients do not return together.",
        "user: Decided: five tries, two seconds. Write that down.",
        '→ memory {"action": "add", "content": "Upload retry budget: five tries, two seconds."}',
        "← saved",
        "assistant: It is in my memory now.",
        tags=("work",),
    ),
    _make_sample(
        "cli",
        2.4,
        "slow test suite",
        "user: Why does the test suite take eleven minutes?",
        '→ terminal {"command": "pytest --durations=5"}',
        "← 212.40s call tests/test_import.py::test_everything\n38.10s setup tests/test_db.py\n12 failed, 408 passed",
        "assistant: One test imports the same archive 400 times. With a fixture of its own it takes four seconds.",
        "user: Do it.",
        '→ terminal {"command": "pytest -x -q"}',
        '← Traceback (most recent call last):\n  File "test_import.py", line 9\nImportError: no module named fixtures',
        "assistant: The fixture has to be in conftest.py. I moved it; all 420 tests pass in 48 seconds.",
    ),
    _make_sample(
        "telegram",
        0.4,
        None,
        "user: What's the weather in Las Vegas?",
        "assistant: Sunny, 24 degrees, no wind. Good for the walk that you planned.",
    ),
    _make_sample(
        "telegram",
        3.1,
        "Reise nach 广西",
        "user: 我们下个月去广西桂林，预算五千元，怎么安排？",
        "assistant: 可以先到桂林住两晚，坐船游漓江到阳朔，再去龙脊梯田。交通和住宿大约四千二百元。",
        "user: 阳朔住哪里比较安静？",
        "assistant: 遇龙河边的民宿比西街安静，骑车到镇上二十分钟。",
    ),
    _make_sample(
        "telegram",
        12.0,
        "Geschenk für Oma",
        "user: Was schenken wir Oma zum Achtzigsten? Sie mag Gärten und Straßenmusik.",
        "assistant: Ein Nachmittag im Botanischen Garten mit einem kleinen Konzert im Café dort.",
    ),
    _make_sample(
        "discord",
        1.0,
        "raid night",
        "user: when is everyone free for the raid this week?",
        "assistant: Thursday after 20:00 fits five of six; only Mika has said no so far.",
    ),
    _make_sample(
        "discord",
        5.5,
        "ラーメンの作り方",
        "user: 醤油ラーメンのスープの作り方を教えて",
        "assistant: 鶏ガラと昆布で出汁をとり、醤油だれは醤油とみりんを一度煮立てて冷まします。",
        "user: 麺は何分ゆでる？",
        "assistant: 細麺なら一分半、太麺なら三分が目安です。",
    ),
    _make_sample(
        "slack",
        0.9,
        "incident 2291: queue is stuck",
        "user: Orders are not being processed since 14:05. What changed?",
        '→ terminal {"command": "kubectl logs deploy/worker --since=1h | tail"}',
        "← ERROR worker: connection to redis:6379 refused",
        "assistant: The cache was restarted at 14:04 and came up without its password. The workers cannot log in.",
        "user: Fix it and write the report.",
        "assistant: The password is back, 1,204 orders were processed. The report is in the incident channel.",
        tags=("work", "incident"),
    ),
    _make_sample(
        "slack",
        8.0,
        "standup notes",
        "user: Summarise yesterday for the standup",
        "assistant: Payments: migration finished. Search: index is 40 % smaller. Blocked: design of the export page.",
    ),
    _make_sample(
        "whatsapp",
        2.0,
        "dinner on Friday",
        "user: Can you find a table for six on Friday, vegetarian, near the station?",
        "assistant: The Green Spoon has one at 19:30. I held it until tonight in your name.",
    ),
    _make_sample(
        "whatsapp",
        15.0,
        "школа",
        "user: Напомни, во сколько завтра родительское собрание?",
        "assistant: Завтра в 18:00, кабинет 214. Ольга просила принести тетради.",
    ),
    _make_sample(
        "signal",
        4.0,
        "bike repair",
        "user: The chain jumps on the small sprocket. New chain or new cassette?",
        "assistant: Measure it: above 0.75 % wear both are due, for a new chain jumps on an old cassette, too.",
    ),
    _make_sample(
        "matrix",
        6.0,
        "reading group",
        "user: Which chapter do we read for next week?",
        "assistant: Chapter seven, on forgetting; Ann leads, and everybody brings one question.",
    ),
    _make_sample(
        "mattermost",
        7.0,
        "release 1.2.3",
        "user: Is v1.2.3 ready to go out?",
        "assistant: All checks are green but one: the changelog has no entry for the new export.",
        "user: Added. Ship it.",
        '→ terminal {"command": "git tag v1.2.3 && git push --tags"}',
        "← * [new tag] v1.2.3 -> v1.2.3",
        "assistant: v1.2.3 is out.",
        tags=("work",),
    ),
    _make_sample(
        "email",
        9.0,
        "Re: invoice 4711",
        "user: Please answer the customer: we will send a corrected invoice by Wednesday.",
        "assistant: Sent: a short apology, the corrected sum of 1,284.50, and Wednesday as the date.",
    ),
    _make_sample(
        "sms",
        10.0,
        None,
        "user: remind me to water the plants",
        "assistant: Every Tuesday and Saturday at 18:00, starting today.",
        model="openai/gpt-5-mini",
        tokens=(300, 40),
    ),
    _make_sample(
        "dingtalk",
        11.0,
        "周报",
        "user: 帮我写这周的周报，重点是数据库迁移",
        "assistant: 本周完成数据库迁移第二阶段，停机时间四分钟；下周计划清理旧表并验证备份。",
    ),
    _make_sample(
        "feishu",
        13.0,
        "会议纪要",
        "user: 把今天的会议纪要整理成三条",
        "assistant: 一、接口冻结到周五；二、测试环境扩容；三、由小李负责回归测试。",
    ),
    _make_sample(
        "wecom",
        14.0,
        "客户回访",
        "user: 明天要回访哪几个客户？",
        "assistant: 三家：华东仓储、南山医疗、北辰教育。北辰上次提到导出太慢。",
    ),
    _make_sample(
        "weixin",
        16.0,
        "周末爬山",
        "user: 周末爬山带什么？",
        "assistant: 水两升、雨衣、充电宝，山上温度大约八度，带一件厚外套。",
    ),
    _make_sample(
        "bluebubbles",
        17.0,
        "mum's phone",
        "user: Mum can't hear people on her phone, what should she try?",
        "assistant: First the small slits next to the screen: dust in them is the usual cause. Then the call volume.",
    ),
    _make_sample(
        "qqbot",
        18.0,
        "游戏攻略",
        "user: 这个副本的第三个首领怎么打？",
        "assistant: 分两组站位，红圈出现时立刻散开，最后百分之十血量时留技能。",
    ),
    _make_sample(
        "homeassistant",
        0.2,
        None,
        "user: is the garage door closed?",
        '→ get_state {"entity": "cover.garage"}',
        "← closed since 18:42",
        "assistant: Yes, since 18:42.",
        model="local/qwen3-8b",
        tokens=None,
    ),
    _make_sample(
        "webhook",
        0.6,
        "build failed: main",
        "user: Build 8812 of main failed: 3 tests in payments",
        "assistant: All three need the currency service, which the new runner cannot reach. It is a network rule.",
        model="openai/gpt-5-mini",
        tokens=(900, 120),
    ),
    _make_sample(
        "api-server",
        1.5,
        None,
        "user: Translate to Korean: the export is ready",
        "assistant: 내보내기가 준비되었습니다.",
        model="openai/gpt-5-mini",
        tokens=(120, 20),
    ),
    _make_sample(
        "acp",
        0.3,
        "explain this function",
        "user: What does _combined() in ranking.py do?",
        "assistant: It adds the best message and the best block of each conversation and weighs them by their kind.",
        tags=("work",),
    ),
    _make_sample(
        "cli",
        6.5,
        "한국어 연습",
        "user: 한국어로 자기소개를 연습하고 싶어요",
        "assistant: 좋아요! 이름, 사는 곳, 좋아하는 것을 세 문장으로 말해 보세요.",
        "user: 저는 베를린에 살고 등산을 좋아합니다",
        "assistant: 아주 자연스러워요. '등산하는 것을'이라고 해도 좋아요.",
    ),
    _make_sample(
        "cli",
        20.0,
        "ห้องสมุด",
        "user: ช่วยเขียนป้ายขอให้เงียบในห้องสมุด",
        "assistant: กรุณางดใช้เสียงในห้องสมุด ขอบคุณค่ะ",
    ),
    _make_sample(
        "cli",
        22.0,
        "sourdough",
        "user: My sourdough does not rise. The starter is a week old.",
        "assistant: A week is young. Feed it twice a day at 26 degrees until it doubles within six hours.",
        "user: It doubled today!",
        "assistant: Then bake tomorrow: the dough will take five hours in your kitchen.",
    ),
    _make_sample(
        "cli",
        27.0,
        "garden in May",
        "user: What can I plant in May on a balcony to the north?",
        "assistant: Ferns, hostas and mint; of vegetables chard and lettuce, which like it cool.",
    ),
    _make_sample(
        "cli",
        33.0,
        "SQLite WAL",
        "user: Explain WAL mode as if I had never seen a database",
        "assistant: Changes are written on a notepad beside the book; readers look at both, and somebody copies the"
        " notes into the book when nobody is looking.",
    ),
    _make_sample(
        "cli",
        45.0,
        "tax papers",
        "user: Which papers does the tax office want for the home office?",
        "assistant: The floor plan, the rent, and a note of the days. Electricity counts by area.",
        tags=("home",),
    ),
)

LONG_PROJECT = (
    (
        "user: Let us move the store to the new schema, step by step",
        "assistant: Three steps: new tables beside the old ones, copy, then switch. Each can be undone.",
        '→ terminal {"command": "python migrate.py --step 1 --dry-run"}',
        "← 12 tables would be created, nothing changed",
        "user: Go on with step one",
        "assistant: Step one is done: twelve tables, no downtime.",
    ),
    (
        "user: Now copy the rows",
        '→ terminal {"command": "python migrate.py --step 2"}',
        "← 1,204,551 rows copied in 94 s",
        "assistant: All 1,204,551 rows are there twice, and their checksums agree.",
    ),
    (
        "user: Switch over tonight",
        "assistant: Switched at 23:10 with four seconds of waiting. The old tables stay for two weeks.",
    ),
)
"""A conversation that was compressed twice, one tuple per session."""
SUMMARIES = (
    "Summary: the store moves to a new schema in three steps; step one (new tables) is done.",
    "Summary: steps one and two are done, checksums agree; what is left is to switch.",
)

NIGHTLY = ("user: Nightly report", "assistant: Nothing new: all backups verified, disk at 61 %.")
"""The messages of a nightly cron job."""
BATCH = ("user: Classify ticket {number}", "assistant: billing, urgent, German")
