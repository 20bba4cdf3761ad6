"""The demo's traffic: real questions in English and Chinese, made to repeat the way LLM traffic repeats."""

from __future__ import annotations

from typing import Any

MODEL = "smollm2-135m"
BRIEF = "You are a helpful assistant. Answer in one short sentence."

Body = dict[str, Any]


def chat(*messages: tuple[str, str], max_tokens: int = 96, **fields: Any) -> Body:
    """A chat request of (role, content) messages, greedy so that the run is repeatable."""
    return {
        "model": MODEL,
        "messages": [{"role": role, "content": content} for role, content in messages],
        "temperature": 0,
        "max_tokens": max_tokens,
        **fields,
    }


QUESTIONS = (
    "What is the capital of France?",
    "How many days does a leap year have?",
    "How many legs does a spider have?",
    "What is the largest planet?",
    "What was the weather like in March 2024?",
    "一年有多少个月？",
    "水的沸点是多少？",
    "2024年3月有多少天？",
)
"""Short answers of the packaged model: one cut off at ``max_tokens`` would rightly never be stored."""

REFORMATTED = (
    "  what is  the capital of France？",
    "How many days does a leap year have",
    "Ｈow many legs does a ｓｐｉｄｅｒ have?",
    "what is the largest planet？",
    "What was the weather like in 2024-03?",
    "一年有多少个月?",
    " 水的沸点是多少 ",
    "２０２４年３月有多少天？",
)
"""The same questions as people and programs write them: spaces, full-width forms, dates, final punctuation."""


def questions() -> list[Body]:
    return [chat(("system", BRIEF), ("user", text)) for text in QUESTIONS]


def reformatted() -> list[Body]:
    """Each question in another form, its JSON fields in another order."""
    bodies = [chat(("system", BRIEF), ("user", text)) for text in REFORMATTED]
    return [dict(reversed(body.items())) for body in bodies]


_SUBJECTS = (
    "apples", "bread", "candles", "clouds", "coral", "cotton", "deserts", "dolphins", "earthquakes", "feathers",
    "glaciers", "glass", "honey", "iron", "lightning", "magnets", "mountains", "mushrooms", "opals", "paper",
    "pearls", "rainbows", "rivers", "rubber", "salt", "silk", "soap", "steel", "tides", "volcanoes",
)  # fmt: skip
_FORMS = (
    "How are {} formed?",
    "Why are {} important?",
    "Where in the world are {} found?",
    "What are {} used for?",
    "Who was the first to study {}?",
    "Which colours can {} have?",
    "What do children learn about {}?",
    "Which book explains {} best?",
    "What would the world be like without {}?",
    "Which myths are told about {}?",
    "How old are {} in the history of the earth?",
    "Which countries are famous for {}?",
    "What can go wrong with {}?",
    "Which animals live near {}?",
    "What did people believe about {} long ago?",
    "Which words sound like {}?",
)


def others() -> list[Body]:
    """What other people ask meanwhile: 480 questions, each once. Their answers are cut short and so never stored."""
    texts = [form.format(subject) for form in _FORMS for subject in _SUBJECTS]
    return [chat(("system", BRIEF), ("user", text), max_tokens=4) for text in texts]


PARAPHRASES = {
    "Which city is the capital of France?": QUESTIONS[0],
    "一年一共有几个月？": QUESTIONS[5],
    "How many days are there in a leap year?": QUESTIONS[1],
    "What number of legs does a spider have?": QUESTIONS[2],
    "Which planet is the largest?": QUESTIONS[3],
    "请问水的沸点是多少度？": QUESTIONS[6],
}
"""In other words, each with the question that it asks again."""

NEAR_MISSES = (
    "What is not the capital of France?",
    "What is the capital of Finland?",
    "How many legs does an ant have?",
    "What is the smallest planet?",
    "What was the weather like in March 2023?",
    "一年没有多少个月？",
    "一年有多少天？",
    "水的冰点是多少？",
    "法国的首都是哪里？",
)
"""Close to a cached question, yet another one, the last in another language: none may be answered from cache."""


def paraphrases() -> list[Body]:
    return [chat(("system", BRIEF), ("user", text)) for text in PARAPHRASES]


def near_misses() -> list[Body]:
    return [chat(("system", BRIEF), ("user", text)) for text in NEAR_MISSES]


def other_settings() -> list[Body]:
    """A cached question under another system prompt, and with another parameter."""
    capital = QUESTIONS[0]
    return [
        chat(("system", "You are a pirate. Answer in one short sentence."), ("user", capital)),
        chat(("system", BRIEF), ("user", capital), max_tokens=95),
    ]


CONVERSATION = (
    "I am planning a three-day trip to Paris. Which district should I stay in?",
    "Which museum should I see first?",
    "What should I eat there?",
    "How do I get from the airport to the centre?",
    "Please sum up the plan in two sentences.",
)
"""The user's turns of one conversation; every turn carries all earlier ones as its prefix."""

GUIDE = " ".join(
    f"Rule {n}: {text}"
    for n, text in enumerate(
        (
            "Greet the customer once, by name when it is known, and never twice in one conversation.",
            "Answer from the shop's published policies only, and say so when a policy is silent on a question.",
            "Orders can be changed within thirty minutes after payment; later changes need a return.",
            "Returns are free within thirty days, in the original packing, with the slip from the parcel.",
            "Refunds go to the card that paid and take five to seven working days after we receive the goods.",
            "Express delivery reaches cities the next working day and villages within three working days.",
            "Gift cards cannot be returned, cannot be exchanged for money and do not expire for five years.",
            "Damaged goods are replaced at once when a photograph arrives within three days of delivery.",
            "Never ask for a password, a full card number or a birthday; a four-digit order code is enough.",
            "Prices on the web page are binding; prices in old newsletters are not, and we say so politely.",
            "A discount code works once, on goods at full price, and not together with another code.",
            "Complaints about staff go to a person; take the order code and promise an answer in two days.",
            "Business customers may pay by invoice within thirty days when their account is confirmed.",
            "Batteries, perfume and paint travel by road only, so they never come with express delivery.",
            "Spare parts are kept for seven years; name the model and the year when you ask for one.",
            "Answer in the customer's language, in one or two short sentences, without bullet points.",
        ),
        start=1,
    )
)
"""The long system prompt that eight users share: as real support prompts are, all rules and no question."""

SUPPORT_QUESTIONS = (
    "Can I change my order after an hour?",
    "How long does a refund take?",
    "Does perfume come with express delivery?",
    "Can I return a gift card?",
    "My parcel arrived damaged. What now?",
    "Can I pay by invoice?",
    "Do you need my password?",
    "我可以退货吗？",
)


def support(question: str) -> Body:
    return chat(("system", "You answer for a web shop. " + GUIDE * 2), ("user", question), max_tokens=24)


STAMPEDE = chat(("system", BRIEF), ("user", "What is the capital of Japan?"))
