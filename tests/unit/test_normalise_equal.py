"""Pairs that are the same question in another typing: their normal forms must be equal."""

from __future__ import annotations

import pytest

from stratacache.policy.normalise import normalise

WHITE_SPACE = [
    ("  What is a heat pump?", "What is a heat pump?"),
    ("What is a heat pump?   ", "What is a heat pump?"),
    ("\n\nWhat is a heat pump?\n", "What is a heat pump?"),
    ("\tWhat is a heat pump?\t", "What is a heat pump?"),
    ("What is   a heat pump?", "What is a heat pump?"),
    ("What is\ta heat\t\tpump?", "What is a heat pump?"),
    ("What is a heat\u00a0pump?", "What is a heat pump?"),
    ("What is\u2003a heat pump?", "What is a heat pump?"),
    ("\u3000什么是热泵？", "什么是热泵？"),
    ("什么是热泵？\u3000\u3000", "什么是热泵？"),
    ("什么是热泵？\r\n", "什么是热泵？"),
    ("Plan my week.\r\nBe brief.\r\n", "Plan my week.\nBe brief."),
    ("Plan my week.\r\r\nBe brief.", "Plan my week.\nBe brief."),
    ("Plan my week.   \nBe brief.\t\n", "Plan my week.\nBe brief."),
    ("Plan my week.\n   \nBe brief.", "Plan my week.\n\nBe brief."),
    ("  Plan my week.\nBe brief.", "Plan my week.\nBe brief."),
    ("One thing.  Another thing.\nBe brief.", "One thing. Another thing.\nBe brief."),
    ("讲讲热泵。  \n简短一点。", "讲讲热泵。\n简短一点。"),
    ("  \n \nPlan my week.", "Plan my week."),
    ("What is a heat pump ?", "What is a heat pump?"),
    ("Well , what is a heat pump ?", "Well, what is a heat pump?"),
    ("Great ! Thanks", "Great! Thanks"),
    ("How do I open the file config.yaml  safely?", "How do I open the file config.yaml safely?"),
    ("```py\r\nx  = 1\r\n```", "```py\nx  = 1\n```"),
    ('   {"a":  1}  ', '{"a":  1}'),
]

WIDTH = [
    ("什么是ＡＩ？", "什么是AI?"),
    ("Ｗｈａｔ is ＤＮＡ?", "What is DNA?"),
    ("１２个月是几天", "12个月是几天"),
    ("你好，请问地铁几点关门？", "你好,请问地铁几点关门?"),
    ("地铁（2号线）几点关门？", "地铁(2号线)几点关门?"),
    ("问题：地铁几点关门？", "问题:地铁几点关门?"),
    ("先洗菜；再切菜。", "先洗菜;再切菜。"),
    ("太好了！谢谢", "太好了!谢谢"),
    ("利率是５％吗？", "利率是5%吗?"),
    ("３．５公里要走多久", "3.5公里要走多久"),
    ("１＋１等于几", "1+1等于几"),
    ("２－１等于几", "2-1等于几"),
    ("Ｃ＋＋难学吗", "C++难学吗"),
    ("价格是＄２０吗", "价格是$20吗"),
    ("Ｒ＆Ｄ是什么意思", "R&D是什么意思"),
    ("Ｃ＃ 和 Java 哪个好", "C# 和 Java 哪个好"),
    ("Hello， who are you？", "Hello, who are you?"),
    ("怎么用ｐｉｐ安装", "怎么用pip安装"),
    ("比分是３：２吗", "比分是3:2吗"),
    ("今天　天气　怎么样", "今天 天气 怎么样"),
    ("ｃａｆe\u0301在哪里", "café在哪里"),
]

COMPOSITION = [
    ("Where is the Cafe\u0301 de Flore?", "Where is the Café de Flore?"),
    ("Who was Bjo\u0308rn Borg?", "Who was Björn Borg?"),
    ("What is a 1 \u212b bond?", "What is a 1 \u00c5 bond?"),
    ("What is 300 \u212a in Celsius?", "What is 300 K in Celsius?"),
    ("한국의 수도는", "\u1112\u1161\u11ab국의 수도는"),
    ("\uf900是谁", "豈是谁"),
]

CHINESE_MARKS_AND_SPACES = [
    ("用 Python 写快速排序", "用Python写快速排序"),
    ("用Python 写快速排序", "用 Python写快速排序"),
    ("我有 3 只猫", "我有3只猫"),
    ("iPhone 15 多少钱", "iPhone 15多少钱"),
    ("你好， 请问怎么退款", "你好，请问怎么退款"),
    ("你好 ，请问怎么退款", "你好，请问怎么退款"),
    ("你好, 请问怎么退款", "你好，请问怎么退款"),
    ("请介绍 (简短) 一下北京", "请介绍（简短）一下北京"),
    ("你好。 请问怎么退款", "你好。请问怎么退款"),
    ("你好.请问怎么退款", "你好。请问怎么退款"),
    ("推荐苹果、 香蕉还是梨", "推荐苹果、香蕉还是梨"),
    ("Python ，好学吗", "Python，好学吗"),
    ("学 AI , 先学什么", "学AI，先学什么"),
    ("什么是 HTTP 协议", "什么是HTTP协议"),
    ("Docker 和 K8s 有什么区别", "Docker和K8s有什么区别"),
    ("他说 “你 好” 是什么意思", '他说 "你 好" 是什么意思'),
    ("请介绍Node.js的优点？", "请介绍Node.js的优点?"),
]

QUOTES = [
    ("What does “carpe diem” mean?", 'What does "carpe diem" mean?'),
    ("I don’t understand entropy", "I don't understand entropy"),
    ("What’s the time in Tokyo", "What's the time in Tokyo"),
    ("Who wrote “Dune”", 'Who wrote "Dune"'),
    ("Alice’s cat is ill", "Alice's cat is ill"),
    ("“碳中和”是什么意思", '"碳中和"是什么意思'),
    ("谁写了“三体”？", '谁写了"三体"?'),
    ("it’s raining and I can’t go", "it's raining and I can't go"),
]

CAPITALS = [
    ("What is photosynthesis", "what is photosynthesis"),
    ("How do I renew a passport", "how do I renew a passport"),
    ("How do I renew a passport", "How do i renew a passport"),
    ("How do I find my IP address", "how do i find my IP address"),
    ("Why is the sky blue", "why is the sky blue"),
    ("When was Rome founded", "when was Rome founded"),
    ("Where can I buy stamps", "where can i buy stamps"),
    ("Which planet is largest", "which planet is largest"),
    ("Who painted Guernica", "who painted Guernica"),
    ("Is it safe to eat raw eggs", "is it safe to eat raw eggs"),
    ("Are whales mammals", "are whales mammals"),
    ("Does aspirin expire", "does aspirin expire"),
    ("Did Rome fall in a day", "did Rome fall in a day"),
    ("Can you explain recursion", "can you explain recursion"),
    ("Can I get a new card", "can i get a new card"),
    ("Will it rain in Oslo", "will it rain in Oslo"),
    ("Could we meet at noon", "could we meet at noon"),
    ("Please explain recursion", "please explain recursion"),
    ("Explain recursion", "explain recursion"),
    ("Describe the water cycle", "describe the water cycle"),
    ("Compare tea and coffee", "compare tea and coffee"),
    ("Tell me about Kyoto", "tell me about Kyoto"),
    ("Give me a recipe for soup", "give me a recipe for soup"),
    ("List the planets", "list the planets"),
    ("In what year did Rome fall", "in what year did Rome fall"),
    ("There is a bug in my app", "there is a bug in my app"),
    ("My card isn't working", "my card isn't working"),
    ("I want to reset my password", "i want to reset my password"),
    ("I forgot my password", "i forgot my password"),
    ("I'm cold", "i'm cold"),
    ("It is late. What should I do", "It is late. what should i do"),
    ("What Is photosynthesis", "What is photosynthesis"),
    ("How To renew a passport", "how to renew a passport"),
    ("Hello there! How are you", "Hello there! how are you"),
]

DATES = [
    ("2024年3月的销量怎么样", "2024-03的销量怎么样"),
    ("2024年3月份的销量怎么样", "2024年3月的销量怎么样"),
    ("2024 年 3 月的销量怎么样", "2024年3月的销量怎么样"),
    ("2024年03月的销量怎么样", "2024年3月的销量怎么样"),
    ("２０２４年３月的销量怎么样", "2024年3月的销量怎么样"),
    ("二〇二四年三月的销量怎么样", "2024年3月的销量怎么样"),
    ("二零二四年十二月的销量怎么样", "2024年12月的销量怎么样"),
    ("Sales in March 2024", "Sales in Mar 2024"),
    ("Sales in March 2024", "Sales in Mar. 2024"),
    ("Sales in March 2024", "Sales in 2024-03"),
    ("Sales in March, 2024", "Sales in March 2024"),
    ("Sales in September 2023", "Sales in Sept 2023"),
    ("Sales in april 2024", "Sales in April 2024"),
    ("Sales in 2024年3月", "Sales in March 2024"),
    ("2024年3月5日发生了什么", "2024-03-05发生了什么"),
    ("2024年3月5日发生了什么", "2024/3/5发生了什么"),
    ("2024年3月5日发生了什么", "2024/03/05发生了什么"),
    ("2024年3月5日发生了什么", "2024-3-5发生了什么"),
    ("2024年3月5日发生了什么", "2024 年 3 月 5 日发生了什么"),
    ("2024年3月5号有什么活动", "2024年3月5日有什么活动"),
    ("二〇二四年三月五日发生了什么", "2024年3月5日发生了什么"),
    ("一九九七年七月一日是星期几", "1997年7月1日是星期几"),
    ("Events on March 5, 2024", "Events on 5 March 2024"),
    ("Events on March 5, 2024", "Events on Mar 5th, 2024"),
    ("Events on March 5, 2024", "Events on March 5 2024"),
    ("Events on March 5, 2024", "Events on 5th of March 2024"),
    ("Events on March 5, 2024", "Events on 2024-03-05"),
    ("Events on March 5, 2024", "Events on 2024/3/5"),
    ("Events on Feb 29, 2024", "Events on 29 February 2024"),
    ("Events on 29 February 2000", "Events on February 29, 2000"),
    ("Who was born on 1 January 1900?", "Who was born on January 1st, 1900?"),
    ("What happened on October 12, 1492?", "what happened on 1492-10-12"),
]

NUMBERS = [
    ("What is 1,000 metres in miles", "What is 1000 metres in miles"),
    ("Why are there 1,000,000 bees", "Why are there 1000000 bees"),
    ("How far is $1,500 from my budget", "How far is $1500 from my budget"),
    ("How do 2,350 people vote", "How do 2350 people vote"),
    ("10,000元存一年利息多少", "10000元存一年利息多少"),
    ("how long is twelve months in weeks", "how long is 12 months in weeks"),
    ("what can I learn in three weeks", "what can I learn in 3 weeks"),
    ("what happened over twenty years", "what happened over 20 years"),
    ("请三天的假怎么申请", "请3天的假怎么申请"),
    ("三个月内可以退货吗", "3个月内可以退货吗"),
    ("用十分钟的时间做菜", "用10分钟的时间做菜"),
    ("十二个月是多久", "12个月是多久"),
    ("二十年后世界会怎样", "20年后世界会怎样"),
    ("怎么在八小时内睡好", "怎么在8小时内睡好"),
    ("五周能学会吗", "5周能学会吗"),
]

FINAL_MARKS = [
    ("What is entropy?", "What is entropy"),
    ("What is entropy.", "What is entropy"),
    ("Is it safe to swim here?", "is it safe to swim here"),
    ("How many bones are in a hand?", "how many bones are in a hand"),
    ("Can you help me?", "can you help me"),
    ("So, what is entropy?", "So, what is entropy"),
    ("Explain entropy.", "Explain entropy"),
    ("I forgot my password.", "I forgot my password"),
    ("Recommend a book about bees.", "recommend a book about bees"),
    ("I am lost. Where is the station?", "I am lost. Where is the station"),
    ("What is Node.js?", "What is Node.js"),
    ('What does "laissez-faire" mean?', 'What does "laissez-faire" mean'),
    ("What is C#?", "What is C#"),
    ("What happens at 100%?", "What happens at 100%"),
    ("什么是熵？", "什么是熵"),
    ("什么是熵。", "什么是熵"),
    ("什么是熵.", "什么是熵"),
    ("请介绍一下北京。", "请介绍一下北京"),
    ("请介绍一下北京.", "请介绍一下北京。"),
    ("为什么天是蓝的？", "为什么天是蓝的"),
    ("怎么退款？", "怎么退款"),
    ("如何学好唱歌？", "如何学好唱歌"),
    ("who invented the zipper?", "Who invented the zipper"),
    ("你喜欢猫吗？", "你喜欢猫吗"),
    ("你在做什么？", "你在做什么"),
    ("退款要多久？", "退款要多久"),
    ("你好，请问怎么退款？", "你好，请问怎么退款"),
    ("这两款有什么区别？", "这两款有什么区别"),
    ("能不能退款？", "能不能退款"),
    ("我忘记密码了。", "我忘记密码了"),
    ("哪款手机好？", "哪款手机好"),
]

COMBINED = [
    ("  what is   the population of China ? ", "What is the population of China?"),
    ("请问 ，２０２４年 ３ 月 ５ 日 是星期几 ？", "请问,2024-03-05是星期几?"),
    ("用  Python  写 Hello World ， 谢谢 ！", "用Python写Hello World，谢谢！"),
    ("How do i get   $1,000 in three weeks ?", "how do I get $1000 in 3 weeks"),
    ("What’s  the “best” laptop ？", 'what\'s the "best" laptop?'),
    ("Where is　Ｔｏｋｙｏ？", "where is Tokyo"),
]

GROUPS = {
    "white space": WHITE_SPACE,
    "width": WIDTH,
    "composition": COMPOSITION,
    "chinese": CHINESE_MARKS_AND_SPACES,
    "quotes": QUOTES,
    "capitals": CAPITALS,
    "dates": DATES,
    "numbers": NUMBERS,
    "final marks": FINAL_MARKS,
    "combined": COMBINED,
}
PAIRS = [
    pytest.param(a, b, id=f"{name}-{i}") for name, group in GROUPS.items() for i, (a, b) in enumerate(group)
]


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_same_question_in_another_typing_has_the_same_form(one: str, other: str) -> None:
    assert normalise(one) == normalise(other)


def test_the_table_is_as_large_as_promised() -> None:
    assert len(PAIRS) >= 150
