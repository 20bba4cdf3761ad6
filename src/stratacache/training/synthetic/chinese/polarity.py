"""Chinese polarity: negation, antonyms, quantifiers, and their meaning-preserving look-alikes."""

from __future__ import annotations

import re

from stratacache.training.synthetic.chinese.lists import replaced
from stratacache.training.synthetic.pair import Draw, Rule
from stratacache.training.synthetic.text import one_of

# 吗-questions and A不A ask the same with and without a negation; only why, how and what-if questions change.
_POLAR = re.compile(r"吗|嘛|么[?？]?$|吧|能不能|是不是|可不可以|有没有|会不会|要不要|是否|不是|还是|没有没")
_IDIOM = re.compile(
    r"不过|不断|不错|不同|不仅|不但|不只|不管|不论|不好意思|不如|不止|不得不|只不过|对不起|差不多|不一定|了不起|无不|莫不|不足|不客气|要不|不知道|不懂|怎么没|不明白"
)
_WHY = re.compile(
    r"(为什么|为何|为啥|怎么)(能|会|可以|要|是|有|给|让|想|喜欢|需要)(?!不|没|员|计|议|闲|点|点儿|么|样|名|时|一|钱|几|多少|求|些|时|人|关)"
)
_WHY_NOT = re.compile(
    r"(为什么|为何|为啥|怎么|咋)(我|你|他|她|它|我们|我的[一-龥]{1,4}|[一-龥]{0,5}?)(总是|一直|老是|还|都|又)?(不|"
    r"没有|没)(能|会|可以|显示|支持|让|给|下雪|下雨|喜欢|来|通过|开通|到账|反应|网|信号|声音|额度)"
)
_IF = re.compile(r"(如果|要是|假如)([一-龥]{0,4}?)(不|没有)(?=[一-龥]{1,6}(?:会怎么样|会怎样|怎么办|有什么))")


def add_negation(text: str, draw: Draw) -> str | None:
    """为什么能 -> 为什么不能, 为什么会 -> 为什么不会; 有 -> 没有."""
    if _POLAR.search(text) or re.search(r"[不没无未别]", text):
        return None

    def new(match: re.Match[str]) -> str | None:
        if match[1] == "怎么" and match[2] not in {"能"}:
            return None
        return f"{match[1]}{'没' if match[2] == '有' else '不'}{match[2]}"

    return one_of(text, draw, _WHY, new)


def remove_negation(text: str, draw: Draw) -> str | None:
    """为什么不能 -> 为什么能, 怎么没有 -> 怎么有; 如果不 -> 如果."""
    if _POLAR.search(text) or _IDIOM.search(text) or len(re.findall(r"[不没无未]", text)) != 1:
        return None

    def new(match: re.Match[str]) -> str | None:
        plain = match[5]
        if match[4] in {"没", "没有"}:
            plain = f"有{plain}" if plain in {"反应", "网", "信号", "声音", "额度"} else None
            if plain is None:
                return None
        return f"{match[1]}{match[2]}{match[3] or ''}{plain}"

    return one_of(text, draw, _WHY_NOT, new) or one_of(text, draw, _IF, lambda m: m[1] + m[2])


_A_NOT_A = {
    "能": "能不能",
    "可以": "可不可以",
    "会": "会不会",
    "有": "有没有",
    "是": "是不是",
    "需要": "需不需要",
    "要": "要不要",
}
_MA = re.compile(r"(能|可以|会|有|是|需要)([^能可会有是需不没都也还只，,。 ]{1,15})(吗|嘛|么)([?？]?)$")
_BACK = re.compile(
    r"(能不能|可不可以|会不会|有没有|是不是|需不需要)([^不没呢还，,。 什么怎哪谁几多啊的]{1,15})([?？]?)$"
)


def polar_form(text: str, draw: Draw) -> str | None:
    """能…吗 -> 能不能…, 是否能…; and back: the same yes-no question."""
    if (
        re.search(
            r"什么|怎么|哪|谁|几|多少|为何|如何|只|都|也|就|才|要求|不|没",
            re.sub("|".join(_A_NOT_A.values()), "", text),
        )
        or "社会" in text
    ):
        return None

    def new(match: re.Match[str]) -> str | None:
        before = text[: match.start()]
        if (match[1] == "会" and re.search(r"[学机社开大体聚约协晚]$", before)) or (
            match[1] == "有" and re.search(r"[只没所拥具含还]$", before)
        ):
            return None
        if (
            (match[1] == "能" and re.search(r"[功智性技才可]$", before))
            or (match[1] == "是" and re.search(r"[还就都但于只可不要总老]$", before))
            or before.endswith(("是", "不", "没", "能"))
        ):
            return None
        options = [_A_NOT_A[match[1]]] + (
            [f"是否{match[1]}"] if match[1] in {"能", "可以", "会", "有", "需要"} else ["是否"]
        )
        return f"{draw.rng.choice(options)}{match[2]}{match[4]}"

    plain = {long: short for short, long in _A_NOT_A.items()}
    return one_of(text, draw, _MA, new) or one_of(
        text, draw, _BACK, lambda m: f"{plain[m[1]]}{m[2]}{draw.rng.choice(['吗', '么', '吗'])}{m[3]}"
    )


_SAME = (
    ("为什么不能", "为什么无法"),
    ("为什么不能", "为什么没法"),
    ("怎么不能", "怎么没法"),
    ("怎么不可以", "怎么不能"),
    ("不能", "无法"),
    ("没法", "无法"),
    ("不可以", "不能"),
    ("不需要", "不用"),
    ("不必", "不用"),
    ("没有收到", "没收到"),
    ("没有显示", "没显示"),
    ("没有通过", "没通过"),
    ("没有到账", "没到账"),
    ("没有反应", "没反应"),
    ("不允许", "禁止"),
    ("不合法", "违法"),
    ("不安全", "危险"),
    ("不成功", "失败"),
    ("不见了", "消失了"),
    ("必须", "不得不"),
    ("一定要", "非要"),
    ("没有用", "没用"),
    ("没有额度", "没额度"),
    ("不正确", "错误"),
    ("不足", "不够"),
    ("不用", "无需"),
    ("从不", "从来不"),
    ("没有提示", "没提示"),
    ("没有效果", "没效果"),
    ("没有声音", "没声音"),
    ("没有信号", "没信号"),
    ("没有成功", "没成功"),
    ("没有钱", "没钱"),
    ("没有办法", "没办法"),
    ("没有权限", "没权限"),
    ("没有了", "没了"),
    ("没有还", "没还"),
    ("没有扣", "没扣"),
    ("没有逾期", "没逾期"),
    ("没有开通", "没开通"),
    ("没有还清", "没还清"),
    ("还没有", "还没"),
    ("还没", "尚未"),
    ("并没有", "并未"),
    ("从来没有", "从没"),
    ("从没", "从未"),
    ("看不到", "看不见"),
    ("找不到", "找不着"),
    ("用不了", "不能用"),
    ("打不开", "无法打开"),
    ("登不上", "无法登录"),
    ("还不上", "还不了"),
    ("付不了", "无法付款"),
    ("收不到", "接收不到"),
    ("不再", "不会再"),
    ("不准", "不许"),
    ("不许", "不允许"),
    ("不行", "不可以"),
    ("不清楚", "不明确"),
    ("不够用", "不足够用"),
    ("不想", "不愿意"),
    ("不喜欢", "不爱"),
    ("不方便", "不便"),
    ("不舒服", "难受"),
    ("不正常", "异常"),
    ("不合格", "未达标"),
    ("不同意", "拒绝同意"),
    ("不收费", "免费"),
    ("免费", "不要钱"),
    ("未通过", "没有通过"),
    ("未成功", "没有成功"),
    ("未到账", "没有到账"),
    ("未还款", "没有还款"),
)
_TABLE = {
    **dict(_SAME),
    **{
        b: a
        for a, b in _SAME[6:]
        if b
        not in {
            "禁止",
            "违法",
            "危险",
            "失败",
            "错误",
            "非要",
            "不得不",
            "无需",
            "不用",
            "不够",
            "尚未",
            "不能用",
            "无法打开",
            "无法登录",
            "无法付款",
            "不足够用",
            "难受",
            "异常",
            "未达标",
            "免费",
            "不要钱",
            "拒绝同意",
            "不会再",
            "不便",
            "不爱",
        }
    },
}


def same_negation(text: str, draw: Draw) -> str | None:
    """不能 -> 无法, 没有收到 -> 没收到, 不成功 -> 失败: negated as before."""
    if re.search(r"能不能|可不可以|是不是|不能不|不得不", text):
        return None
    pattern = re.compile(
        "|".join(sorted((word for word in _TABLE if draw.allows(f"negation {word}")), key=len, reverse=True))
    )
    return one_of(
        text,
        draw,
        pattern,
        lambda m: None if m[0] == "不用" and text[m.end() : m.end() + 1] in {"了", ""} else _TABLE[m[0]],
    )


_BOTH = re.compile(r"还是|或|和|与|跟|区别|不同|以及|、|及")


def antonym(text: str, draw: Draw) -> str | None:
    """One word becomes its opposite; not beside and/or, which may name both."""
    return (
        None
        if _BOTH.search(text)
        else replaced(
            text, draw, "zh_antonyms", re.compile("打开通|重新|自动关|关注|最近|取消关|不|没|无法|非")
        )
    )


def quantifier(text: str, draw: Draw) -> str | None:
    """所有 -> 部分, 每天 -> 每周, 至少 -> 至多."""
    return (
        None
        if _BOTH.search(text)
        else replaced(
            text,
            draw,
            "zh_quantifiers",
            re.compile(
                "不|没|以上都|拥有|所有权|[可所]以|以下[载线单]|满[足意]|第|账单|天天[酷利]|全部[是为]"
            ),
        )
    )


def same_quantifier(text: str, draw: Draw) -> str | None:
    """每天 -> 天天, 至少 -> 起码."""
    return replaced(text, draw, "zh_quantifiers_same", re.compile("不|所有权|所有制"))


RULES = (
    Rule("negation_added", "zh", 0, "negation", add_negation),
    Rule("negation_removed", "zh", 0, "negation", remove_negation),
    Rule("polar_form", "zh", 1, "negation", polar_form),
    Rule("negation_same", "zh", 1, "negation", same_negation),
    Rule("antonym", "zh", 0, "word", antonym),
    Rule("quantifier", "zh", 0, "quantifier", quantifier),
    Rule("quantifier_same", "zh", 1, "quantifier", same_quantifier),
)
