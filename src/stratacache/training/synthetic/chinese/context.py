"""Chinese context: a condition, time, person or question word that decides, and ones that do not."""

from __future__ import annotations

import re

from stratacache.training.synthetic.chinese.lists import alternation, replaced
from stratacache.training.synthetic.lexicon import rows
from stratacache.training.synthetic.pair import Draw, Rule
from stratacache.training.synthetic.text import one_of, spliced

ASKS = re.compile(r"怎么|如何|怎样|什么|哪|多少|为什么|吗|能不能|多久|几")
_SEVERAL = re.compile(r"[，,。！!；;].*|[?？].+")
_HAS_WHOM = re.compile(
    r"孕妇|小孩|孩子|宝宝|老人|婴儿|男|女|狗|猫|儿童|我|你|他|人|手术|期间|时候|冬|夏|如果|的时候|后"
)


def _modifiers(text: str) -> list[str]:
    """The conditions that change the answer, of the topics that the text is about."""
    if (
        len(text) > 24
        or _SEVERAL.search(text)
        or _HAS_WHOM.search(text)
        or not re.search(r"怎么|如何|怎样|什么好|能不能|可以|哪", text)
    ):
        return []
    return [
        new
        for topic, news, *_ in rows("zh_modifiers")
        if re.search(topic, text)
        for new in news.split("|")
        if new not in text
    ]


def add_modifier(text: str, draw: Draw) -> str | None:
    """孕妇, 二手, 在Linux上 ...: a condition that decides the answer, put first."""
    options = [new for new in _modifiers(text) if draw.allows(f"modifier {new}")]
    return draw.rng.choice(options) + text if options else None


def swap_modifier(text: str, draw: Draw) -> tuple[str, str] | None:
    """Two conditions that each change the answer: 孕妇 -> 糖尿病人."""
    options = _modifiers(text)
    if len(options) < 2:
        return None
    one, other = draw.rng.sample(options, 2)
    if one == other or not draw.allows(f"modifier {one}", f"modifier {other}"):
        return None
    return one + text, other + text


def move_modifier(text: str, draw: Draw) -> tuple[str, str] | None:
    """A condition that decides, put last or said in other words: 孕妇 -> 怀孕的女性."""
    options = [new for new in _modifiers(text) if draw.allows(f"modifier {new}")]
    if not options:
        return None
    addition = draw.rng.choice(options)
    said = replaced(addition, Draw(draw.rng, "train"), "zh_modifiers_same")
    if said and draw.rng.random() < 0.6:
        return addition + text, said + text
    body = text.rstrip("?？。. ")
    return addition + text, draw.rng.choice(
        [f"{addition}，{text}", f"{body}（{addition}）", f"{body}，{addition}"]
    )


def narrow(text: str, draw: Draw) -> str | None:
    """手机 -> 二手手机: the thing is narrowed to another answer."""
    kinds = {noun: words.split("|") for noun, words in rows("zh_narrowed")}
    for match in alternation(tuple(kinds)).finditer(text):
        before = text[max(0, match.start() - 2) : match.start()]
        usable = [w for w in kinds[match[0]] if draw.allows(f"narrowed {w}{match[0]}") and w not in text]
        if usable and re.search(
            r"[买卖修选用换洗办看]$|什么$|怎么$|如何$|一部$|一个$|一台$|哪款$|申请$|设置$", before
        ):
            if re.match(r"[号银店铺卡壳桌系软游维版网]|支付|登|锁", text[match.end() :]):
                continue
            return spliced(text, match.span(), draw.rng.choice(usable) + match[0])
    return None


def empty_modifier(text: str, draw: Draw) -> str | None:
    """到底, 一般, 具体: words that ask nothing more."""
    pattern = re.compile(r"怎么|如何|怎样|为什么|是什么|哪里")
    words = {
        "怎么": "到底怎么|具体怎么|究竟怎么",
        "如何": "具体如何|到底如何|究竟如何",
        "怎样": "到底怎样|具体怎样",
        "为什么": "到底为什么|究竟为什么",
        "是什么": "到底是什么|究竟是什么",
        "哪里": "具体哪里|到底哪里",
    }
    return (
        None
        if re.search("到底|究竟|具体|一般|大概", text)
        else one_of(text, draw, pattern, lambda m: draw.rng.choice(words[m[0]].split("|")))
    )


_NO_TIME = re.compile(
    r"今天我|从前|以前|以后|昨天我|前后|[早中]上好|[下中]午好|晚上好|最后|[一二两三四几每]周[一二三四五六日]|周一[次起般个遍]|[个过]月[前后]天"
    r"|前[面进提台途任辈景锋端列言]|后[面果台悔续来备端期]|大学生|小学生|中学生|生日|[一二三四五六七八九十]月[经饼亮嫂]|[0-9零〇]年[中初]"
)


def change_time(text: str, draw: Draw) -> str | None:
    """昨天 -> 明天, 饭前 -> 饭后."""
    return None if re.search("还是|和|或|，|,|到", text) else replaced(text, draw, "zh_times", _NO_TIME)


def same_time(text: str, draw: Draw) -> str | None:
    """昨天 -> 昨日, 星期一 -> 周一."""
    return replaced(text, draw, "zh_times_same")


_I = re.compile(r"^(我)(?=(?:能|可以|可不可以|能不能|应该|该|需要|要不要|有权))")
_MY = re.compile(
    r"我的(?=(?:账户|账号|密码|手机|银行卡|花呗|借呗|余额|身份证|额度|信用|工资|电脑|快递|订单))"
)
_OWNERS = (
    "别人的",
    "我老板的",
    "陌生人的",
    "前女友的",
    "邻居的",
    "我女儿的",
    "去世父亲的",
    "客户的",
    "我员工的",
    "朋友的",
    "室友的",
    "我妈的",
)
_OTHERS = (
    "我老板",
    "房东",
    "我妈",
    "我男朋友",
    "公司",
    "未成年人",
    "我孩子",
    "别人",
    "我父亲",
    "我室友",
    "我前妻",
    "外国人",
    "我的客户",
    "物业",
    "警察",
    "学校",
    "我邻居",
    "银行",
    "我爷爷",
)


def change_person(text: str, draw: Draw) -> str | None:
    """我能 -> 房东能; 我的密码 -> 别人的密码."""
    if text.count("我") != 1:
        return None
    if not re.search(
        "密码|查|登录|余额|注销|解绑|修改|转|提现|找回|看|^我(?:能|可以|可不可以|应该|该|要不要|有权)", text
    ):
        return None  # a fault is explained alike whosever it is; access is not
    others = [other for other in _OTHERS if draw.allows(f"person {other}")]
    owners = [owner for owner in _OWNERS if draw.allows(f"owner {owner}")]
    return (one_of(text, draw, _I, lambda m: draw.rng.choice(others)) if others else None) or (
        one_of(text, draw, _MY, lambda m: draw.rng.choice(owners)) if owners else None
    )


def drop_person(text: str, draw: Draw) -> str | None:
    """我怎么… -> 怎么…: the asker goes without saying."""
    if text.count("我") != 1:
        return None
    return one_of(
        text,
        draw,
        re.compile(
            r"^我(?=(?:怎么|如何|该怎么|要怎么|怎样|想知道|可以|能不能))|^我想(?:知道|问|了解)?(?=(?:怎么|如何|怎样))"
        ),
        lambda m: "",
    )


_HOW = re.compile(
    r"怎么(?=(?!样|办|说|回事|了|会|能|还|没|不|才|就|这|那|又|都|是|有|读|么|可|一|来|想|看|在)[一-龥]{2})|如何(?=[一-龥]{2})"
)
_OTHER_WORDS = {
    "为什么": ("什么时候",),
    "多少钱": ("在哪里",),
    "在哪里": ("多少钱",),
    "多久": ("多少钱",),
    "什么时候": ("为什么",),
    "谁": ("什么时候",),
}


def change_question_word(text: str, draw: Draw) -> str | None:
    """怎么 -> 为什么要, 什么时候; 多久 -> 多少钱."""
    if len(ASKS.findall(text)) != 1 or _SEVERAL.search(text):
        return None

    def how(match: re.Match[str]) -> str | None:
        return draw.rng.choice(["为什么要", "什么时候", "在哪里", "谁可以"])

    def when(match: re.Match[str]) -> str | None:
        return draw.rng.choice(["为什么", "在哪里"])

    return one_of(
        text, draw, re.compile(r"^如何(?=[一-龥]{2})|^怎么(?=(?:" + SURE_DEED + "))"), how
    ) or one_of(text, draw, re.compile("什么时候(?=能|可以|开始|会)"), when)


SURE_DEED = (
    "开通|关闭|修改|更改|下载|安装|卸载|注册|注销|取消|删除|恢复|"
    "申请|办理|查询|解绑|绑定|设置|制作|治疗|提高|使用|购买|清理|学习|练|做|选|写|买|找"
)


RULES = (
    Rule("modifier", "zh", 0, "modifier", add_modifier),
    Rule("modifier_swapped", "zh", 0, "modifier", swap_modifier),
    Rule("modifier_moved", "zh", 1, "modifier", move_modifier),
    Rule("modifier_narrowed", "zh", 0, "modifier", narrow),
    Rule("modifier_empty", "zh", 1, "modifier", empty_modifier),
    Rule("time", "zh", 0, "time", change_time),
    Rule("time_same", "zh", 1, "time", same_time),
    Rule("person", "zh", 0, "person", change_person),
    Rule("person_dropped", "zh", 1, "person", drop_person),
    Rule("question_word", "zh", 0, "question_word", change_question_word),
)
