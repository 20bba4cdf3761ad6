"""Chinese names and order: entities, directions, comparisons, roles, and re-orderings that keep the meaning."""

from __future__ import annotations

import re
from functools import cache

from stratacache.training.synthetic.chinese.lists import alternation, replaced
from stratacache.training.synthetic.lexicon import groups
from stratacache.training.synthetic.pair import Draw, Rule
from stratacache.training.synthetic.text import one_of, spliced


@cache
def _kinds() -> dict[str, str]:
    return {member: kind for kind, members in groups("zh_entities").items() for member in members}


# Part of a longer name: 上海路, 北京人, 中国银行, 苹果手机, 海南岛, 南京大学 ...
_LONGER_AFTER = re.compile(
    r"^(?:路|街|人|话|菜|大学|银行|移动|联通|电信|公司|手机|岛|省|市|站|号|客服|皮|汁|醋|花|节|熊|机场|小面|烤鸭|时间|豆|"
    r"干|酱|茶|虎|奶|饼|片|糖|树|派|币|券|红包|卡|门|线|员|史|课)"
)
_LONGER_BEFORE = re.compile(r"(?:小|大|老|新|青|红|黑|白|水|山|东|西|南|北|中国|中华|来自|黄|烂)$")


def names_in(text: str) -> list[tuple[re.Match[str], str]]:
    """The listed names in the text with their kinds, without those inside longer names."""
    return [
        (match, _kinds()[match[0]])
        for match in alternation(tuple(_kinds())).finditer(text)
        if not _LONGER_AFTER.match(text[match.end() :]) and not _LONGER_BEFORE.search(text[: match.start()])
    ]


def change_entity(text: str, draw: Draw) -> str | None:
    """One name becomes another of its kind that the question does not hold."""
    found = names_in(text)
    draw.rng.shuffle(found)
    for match, kind in found:
        usable = [
            new for new in groups("zh_entities")[kind] if new not in text and draw.allows(match[0], new)
        ]
        if usable and text.count(match[0]) == 1:
            return spliced(text, match.span(), draw.rng.choice(usable))
    return None


def alias(text: str, draw: Draw) -> str | None:
    """One name becomes another name of the same: 工商银行, 工行."""
    return replaced(
        text,
        draw,
        "zh_aliases",
        re.compile(
            r"大学|银行卡|系统|手机壳|手机号|手机银行|电脑版|桌|人民|孩子|小孩|路|市|省|网络电视|微信号"
        ),
    )


_PLACE = r"([一-龥A-Za-z0-9]{2,6}?)"
_FROM = re.compile(
    rf"从{_PLACE}(到|去|转到|转|飞|至|换成|转换成|回){_PLACE}(?=怎么|要|需要|多少|坐|的(?:机票|火车|高铁|路线|车票|航班)|如何|有|$|[?？])"
)
_BOTH_WAYS = re.compile(
    r"距离|多远|多少公里|公里|路程|多久|多长时间|时间|里程|几个小时|什么(?:时候|程度)|开始"
)
_NO_PLACE = re.compile(
    r"钱|吗|每|限|额|现在|今天|开始|头|一|零|小|大|哪|什么|我|你|他|这|那|几|月|年|日|点|上(?!海|饶)|下|前|后|内|外|里|古|家"
)
_INTO = re.compile(
    r"(?:把|将)?([A-Za-z]{2,6}|微信|支付宝|银行卡|余额宝|花呗|信用卡|人民币|美元|欧元|港币|日元|阳历|阴历|农历|公历|"
    r"繁体字?|简体字?)(?:里的钱|的钱|钱)?(怎么|如何|怎样)?(转换成|转换为|转成|换成|转到|转|兑换成|兑换|提现到)([A-Za-z]{2,"
    r"6}|微信|支付宝|银行卡|余额宝|花呗|信用卡|人民币|美元|欧元|港币|日元|阳历|阴历|农历|公历|繁体字?|简体字?)(?![A-Za-z])"
)


def swap_direction(text: str, draw: Draw) -> str | None:
    """从A到B -> 从B到A, A转B -> B转A; not distances, which are the same both ways."""
    if _BOTH_WAYS.search(text):
        return None

    def places(match: re.Match[str]) -> str | None:
        bad = _NO_PLACE.search(match[1]) or _NO_PLACE.search(match[3]) or match[1] == match[3]
        return None if bad else f"从{match[3]}{match[2]}{match[1]}"

    def into(match: re.Match[str]) -> str | None:
        if match[1] == match[4]:
            return None
        whole = match[0]
        start, end = match.start(), match.start()
        swapped = spliced(whole, (match.start(4) - end, match.end(4) - end), match[1])
        return spliced(swapped, (match.start(1) - start, match.end(1) - start), match[4])

    return one_of(text, draw, _FROM, places) or one_of(text, draw, _INTO, into)


def turn_direction(text: str, draw: Draw) -> str | None:
    """从A到B -> 去B，从A出发: the same way; a distance both ways; A和B的区别 -> B和A的区别."""

    def places(match: re.Match[str]) -> str | None:
        if (
            _NO_PLACE.search(match[1])
            or _NO_PLACE.search(match[3])
            or match[2] not in {"到", "去", "飞", "至"}
        ):
            return None
        if _BOTH_WAYS.search(text) and re.search("距离|多远|多少公里|路程", text):
            return f"从{match[3]}到{match[1]}"
        return draw.rng.choice(
            [
                f"去{match[3]}从{match[1]}出发",
                f"由{match[1]}{match[2]}{match[3]}",
                f"{match[1]}{match[2]}{match[3]}",
            ]
        )

    return one_of(text, draw, _FROM, places)


_AND = re.compile(
    r"^([一-龥A-Za-z0-9+#]{1,8})(和|与|跟|还是)([一-龥A-Za-z0-9+#]{1,8}?)(?=(?:的区别|有什么区别|的差别|有什么不同|有啥区别|的不同|的关系|区别|哪个|谁))"
)


def swap_symmetric(text: str, draw: Draw) -> str | None:
    """A和B的区别 -> B和A的区别, A还是B -> B还是A, 谁 and 哪个 alike."""
    if re.search(r"[是用]", text.split("还是")[0]) or (
        "还是" in text and "哪" not in text and "谁" not in text
    ):
        return None
    return one_of(
        text,
        draw,
        _AND,
        lambda m: None if re.search("[是比有选]|哪|什么|应该|怎|的$", m[1] + m[3]) else f"{m[3]}{m[2]}{m[1]}",
    )


_THAN = re.compile(
    r"^(为什么|为何|为啥)((?!之前|以前)[一-龥A-Za-z0-9]{1,6}?)(要|会)?比((?!之前|以前|上|去年)[一-龥A-Za-z0-9]{1,"
    r"6}?)(更|还)?(高|大|小|好|快|慢|贵|便宜|重|轻|长|短|早|晚|多|少|强|难|冷|热|厉害|漂亮|聪明|流行|受欢迎|重要)(?=$|"
    r"[?？呢吗啊,，了])"
)
_OPPOSITE = {
    "高": "低",
    "大": "小",
    "小": "大",
    "快": "慢",
    "慢": "快",
    "贵": "便宜",
    "便宜": "贵",
    "重": "轻",
    "轻": "重",
    "长": "短",
    "短": "长",
    "早": "晚",
    "晚": "早",
    "多": "少",
    "少": "多",
    "强": "弱",
    "冷": "热",
    "热": "冷",
    "好": "差",
    "难": "容易",
}


def swap_comparison(text: str, draw: Draw) -> str | None:
    """为什么A比B高 -> 为什么B比A高."""
    return one_of(text, draw, _THAN, lambda m: f"{m[1]}{m[4]}{m[3] or ''}比{m[2]}{m[5] or ''}{m[6]}")


def invert_comparison(text: str, draw: Draw) -> str | None:
    """为什么A比B高 -> 为什么B比A低."""
    return one_of(
        text,
        draw,
        _THAN,
        lambda m: (
            f"{m[1]}{m[4]}{m[3] or ''}比{m[2]}{m[5] or ''}{_OPPOSITE[m[6]]}" if m[6] in _OPPOSITE else None
        ),
    )


_VERB = "打|骂|咬|撞|骗|举报|拉黑|欺负|误会|拒绝|删除|屏蔽|追|甩|伤害|投诉|辞退|起诉|包围|追尾|邀请|嘲笑|诽谤"
_BY = re.compile(
    rf"(我|你|孩子|别人|朋友|女朋友|男朋友|老公|老婆|同学|老师|对方)被(狗|猫|我|别人|朋友|女朋友|男朋友|老公|老婆|同学|老师|公司|对方|老板|同事)({_VERB})了"
)
_DID = re.compile(
    rf"(?<![被把])(狗|猫|我|别人|朋友|女朋友|男朋友|老公|老婆|同学|老师|公司|对方|老板|同事)"
    rf"({_VERB})了(我|你|孩子|别人|朋友|女朋友|男朋友|老公|老婆|同学|老师|对方)"
)
_KIN = (
    "爸爸|妈妈|父亲|母亲|哥哥|弟弟|姐姐|妹妹|"
    "老婆|老公|爷爷|奶奶|儿子|女儿|叔叔|舅舅|姑姑|阿姨|姐夫|表哥|表姐|堂弟|侄子|外甥|朋友|老板|同事"
)
_OF_KIN = re.compile(rf"({_KIN})的({_KIN})")


def swap_roles(text: str, draw: Draw) -> str | None:
    """狗咬了我 -> 我咬了狗, 我被A打了 -> A被我打了, 哥哥的老婆 -> 老婆的哥哥."""
    return (
        one_of(text, draw, _BY, lambda m: f"{m[2]}被{m[1]}{m[3]}了")
        or one_of(text, draw, _DID, lambda m: f"{m[3]}{m[2]}了{m[1]}")
        or one_of(text, draw, _OF_KIN, lambda m: f"{m[2]}的{m[1]}")
    )


def passive(text: str, draw: Draw) -> str | None:
    """狗咬了我 <-> 我被狗咬了, 别人把我打了."""
    return one_of(
        text, draw, _BY, lambda m: draw.rng.choice([f"{m[2]}{m[3]}了{m[1]}", f"{m[2]}把{m[1]}{m[3]}了"])
    ) or one_of(
        text, draw, _DID, lambda m: draw.rng.choice([f"{m[3]}被{m[1]}{m[2]}了", f"{m[1]}把{m[3]}{m[2]}了"])
    )


_DEED = (
    "开通|关闭|修改|更改|下载|安装|卸载|注册|注销|取消|删除|恢复|申请|办理|查询|解绑|绑定|设置|制作|治疗|预防|去除|清洗|提高|使用|"
    "购买|清理|保养|选择|激活|找回|打开|更换|破解|升级|设计|计算|训练|缓解|练习|辨别|鉴别|挑选"
)
_HOW_DO = re.compile(
    rf"^(怎么|如何|怎样)(才能)?({_DEED})([^怎如何什么为哪谁几多，,。 ？?吗呢了的用比从把被给到在和]{{2,9}})[?？]?$"
)
_DONE_HOW = re.compile(
    rf"^([^怎如何什么为哪谁几多，,。 ？?吗呢了用比从把被给到在和我你他能不没想要可以会有是]{{2,9}})"
    rf"(怎么|如何|怎样)({_DEED})[?？]?$"
)


def front_object(text: str, draw: Draw) -> str | None:
    """怎么修改密码 <-> 密码怎么修改, 修改密码的方法."""
    forward = _HOW_DO.match(text)
    if forward:
        deed, thing = forward[3], forward[4]
        return draw.rng.choice(
            [
                f"{thing}怎么{deed}",
                f"{thing}如何{deed}",
                f"{thing}要怎样{deed}",
                f"{deed}{thing}的方法",
                f"{deed}{thing}怎么弄",
                f"{thing}{deed}方法",
                f"{deed}{thing} 怎么",
            ]
        )
    back = _DONE_HOW.match(text)
    if back:
        return draw.rng.choice(
            [
                f"怎么{back[3]}{back[1]}",
                f"如何{back[3]}{back[1]}",
                f"{back[3]}{back[1]}的方法",
                f"怎样才能{back[3]}{back[1]}",
            ]
        )
    return None


RULES = (
    Rule("entity", "zh", 0, "entity", change_entity),
    Rule("entity_alias", "zh", 1, "entity", alias),
    Rule("direction", "zh", 0, "direction", swap_direction),
    Rule("direction_turned", "zh", 1, "direction", turn_direction),
    Rule("symmetric_swapped", "zh", 1, "direction", swap_symmetric),
    Rule("comparison", "zh", 0, "comparison", swap_comparison),
    Rule("comparison_inverted", "zh", 1, "comparison", invert_comparison),
    Rule("role", "zh", 0, "role", swap_roles),
    Rule("passive", "zh", 1, "role", passive),
    Rule("object_fronted", "zh", 1, "order", front_object),
)
