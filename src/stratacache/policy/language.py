"""Which language a text is in, as a stable tag: a part of the semantic partition, as an answer keeps the asker's.

Rules, in one pass over the text:

1. Addresses (URLs, e-mail) are left out. A run of letters of an alphabet is one word; Han, kana, Hangul and the
   scripts written without spaces count by character.
2. Each weighs 1, except Latin words: a foreign term in a Chinese or Hindi sentence is ordinary, so a Latin word weighs
   ½, but an English function word (*what*, *is*, *the*) makes a sentence English and weighs 2.
3. Han beside kana is Japanese (``ja``) when kana are a sixth of both or more, else Chinese (``zh``).
4. The script with three fifths of the weight or more gives the tag; without one it is ``mixed``, without letters
   ``none``. Cyrillic and Arabic are told apart by letters that only one language has (``uk``, ``sr``, ``fa``, ``ur``),
   else they are ``ru`` and ``ar``.
5. Latin script is ``en`` unless it is clearly another language, then ``latin``: when the words that are accented or
   function words of another language are two more than the English function words.

Which of the other languages in Latin script it is, is not told, nor are simplified and traditional characters.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Final
from unicodedata import normalize

MAX_CHARS: Final = 20_000
"""Only so much of a text is looked at; a longer one is pasted material."""

_ADDRESS = re.compile(r"(?:https?://|www\.)[^\s\u3000-\u9fff]+|[\w.+-]+@[\w-]+\.[\w.-]+", re.ASCII)
_DOMINANT = 0.6
_KANA_SHARE = 1 / 6

# Ranges of Unicode blocks; the alphabets by word (+), the others by character.
_LATIN = r"[A-Za-zÀ-ÖØ-öø-\u024f\u1e00-\u1effＡ-Ｚａ-ｚ\u0300-\u036f]+(?:['’][A-Za-z]+)?"
_SCRIPTS: Final = {
    "latin": _LATIN,
    "han": r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]",
    "kana": r"[\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9d]",
    "ko": r"[\u1100-\u11ff\u3131-\u318e\uac00-\ud7a3]",
    "ru": r"[\u0400-\u052f]+",
    "ar": r"[\u0620-\u065f\u066e-\u06d3\u06d5-\u06ed\u06fa-\u06ff\u0750-\u077f\ufb50-\ufdff\ufe70-\ufefc\u200c]+",
    "he": r"[\u0590-\u05f4\ufb1d-\ufb4f]+",
    "el": r"[\u0370-\u03ff\u1f00-\u1fff]+",
    "hy": r"[\u0531-\u0587]+",
    "hi": r"[\u0900-\u097f\u200d]+",
    "bn": r"[\u0980-\u09ff]+",
    "pa": r"[\u0a00-\u0a7f]+",
    "gu": r"[\u0a80-\u0aff]+",
    "or": r"[\u0b00-\u0b7f]+",
    "ta": r"[\u0b80-\u0bff]+",
    "te": r"[\u0c00-\u0c7f]+",
    "kn": r"[\u0c80-\u0cff]+",
    "ml": r"[\u0d00-\u0d7f]+",
    "si": r"[\u0d80-\u0dff]+",
    "th": r"[\u0e01-\u0e4e]",
    "lo": r"[\u0e81-\u0edf]",
    "bo": r"[\u0f00-\u0fff]+",
    "my": r"[\u1000-\u109f]",
    "ka": r"[\u10a0-\u10ff\u1c90-\u1cbf]+",
    "am": r"[\u1200-\u139f]+",
    "km": r"[\u1780-\u17d3]",
    "mn": r"[\u1820-\u1878]+",
    "other": r"[^\W\d_]+",
}
_WORD = re.compile("|".join(f"(?P<{name}>{letters})" for name, letters in _SCRIPTS.items()))

_ONLY_UKRAINIAN = re.compile("[іїєґІЇЄҐ]")
_ONLY_SERBIAN = re.compile("[јљњђћџЈЉЊЂЋЏ]")
_ONLY_PERSIAN = re.compile("[پچژگ]")
_ONLY_URDU = re.compile("[ٹڈڑںےھ]")

_ENGLISH = """
the a an this that these those is are was were be been am do does did has have had can could will would shall should may
might must what which who whom whose when where why how i you he she it we they me him her us them my your his its our
their and or but if because than then of to in on at by for with from about into over under after before between not
there here any some all each every please tell explain give show i'm it's what's don't doesn't can't isn't where's
who's"""
# Words that are as common in English or in names (die, in, a, me, on, met, Kim) are left out.
_NOT_ENGLISH = """
el los las una unos unas del qué cómo cuál cuándo dónde quién por para con pero porque está están puedo puede hay su es
y lo que como cuanto donde quien muy más tengo hacer soy
le les des du une est sont quel quelle quels quelles comment pourquoi où qui quoi avec dans sur je tu nous vous mais
c'est qu'est j'ai peut faut ce cette ces et au aux pas
der das dem ein eine einen einem ist sind wie wo wann wer warum welche welcher welches ich du wir ihr sie mit für auf
von zu nicht und oder aber kann mein dein gibt wird
o os um uma não são qual quais onde quem em dos você eu meu sua
il uno della dello degli che cosa perché quando quanto sono è di mio nel sul posso si
het een wat waar wanneer waarom hoe welke ik jij wij niet zijn kan voor
och det är vad hur när varför inte jag att som på hvad hvordan ikke hvor og jeg
jak gdzie kiedy dlaczego czy nie jest się mogę mám kde proč
apa yang dan dengan untuk bagaimana kapan dimana siapa mengapa adalah saya ini itu tidak ke dari
nasıl nedir nerede neden ve için mı mü
là gì của và có không như thế nào tôi"""
_ENGLISH_WORDS: Final = frozenset(_ENGLISH.split())
_OTHER_WORDS: Final = frozenset(_NOT_ENGLISH.split())


def language_of(text: str) -> str:
    """The language's tag: ``en``, ``zh``, ``ja``, ``ko``, ``ru`` …, ``latin``, ``other``, ``mixed`` or ``none``.

    Pure, never raises, linear in ``len(text)`` up to ``MAX_CHARS``.
    """
    weights: defaultdict[str, float] = defaultdict(float)
    latin: list[str] = []
    text = _ADDRESS.sub(" ", text[:MAX_CHARS])
    for match in _WORD.finditer(text):
        script = match.lastgroup or "other"
        if script == "latin":
            latin.append(normalize("NFKC", match.group()).lower().replace("’", "'"))
        else:
            weights[script] += 1
    kana, han = weights.pop("kana", 0), weights.pop("han", 0)
    if kana or han:
        japanese = not han or (kana > 1 and kana >= (kana + han) * _KANA_SHARE)
        weights["ja" if japanese else "zh"] = kana + han
    if latin:
        weights["latin"] = len(latin) / 2 + 1.5 * sum(word in _ENGLISH_WORDS for word in latin)
    if not weights:
        return "none"
    script = max(weights, key=weights.__getitem__)
    if weights[script] < _DOMINANT * sum(weights.values()):
        return "mixed"
    return _of_latin(latin) if script == "latin" else _of_script(script, text)


def _of_latin(words: list[str]) -> str:
    english = sum(word in _ENGLISH_WORDS for word in words)
    other = sum(word in _OTHER_WORDS or not word.isascii() for word in words)
    return "latin" if other >= english + 2 else "en"


def _of_script(script: str, text: str) -> str:
    if script == "ru":
        return "uk" if _ONLY_UKRAINIAN.search(text) else "sr" if _ONLY_SERBIAN.search(text) else "ru"
    if script == "ar":
        return "ur" if _ONLY_URDU.search(text) else "fa" if _ONLY_PERSIAN.search(text) else "ar"
    return script
