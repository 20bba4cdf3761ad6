"""Recognises questions about form, where spelling, marks and spaces are the content and must stay exact."""

from __future__ import annotations

import re
from functools import lru_cache

from stratacache.policy.normalise.chars import WIDTH_TABLE, latin_words, lexicon

_FORM_WORDS = lexicon(
    # work on language
    "translate translates translated translating translation translations translator spell spells spelled spelling",
    "spellings misspelled misspelling rewrite rewrites rewriting rewritten rephrase rephrased rephrasing paraphrase",
    "paraphrased paraphrasing reword rewording proofread proofreading copyedit grammar grammatical grammatically",
    "ungrammatical typo typos punctuate punctuation comma commas period periods semicolon colon apostrophe",
    "apostrophes hyphen hyphens hyphenated dash quote quotes quoted quotation edit edits edited editing correction",
    "corrections pronounce pronounced pronunciation rhyme rhymes rhyming syllable syllables haiku noun verb adverb",
    "adjective tense plural singular abbreviate abbreviated abbreviation acronym prefix suffix sentence sentences",
    "phrase phrases phrasing wording verbatim transcribe transliterate romanize romanise pinyin",
    # letters and counting
    "letter letters character characters char chars word words wordcount vowel vowels consonant consonants space",
    "spaces whitespace blank newline newlines indentation capitalize capitalise capitalized capitalised capitalizing",
    "capitalization capitalisation uppercase lowercase titlecase camelcase anagram anagrams palindrome palindromes",
    "reverse reversed count counts counting length symbol symbols digit digits glyph emoji emojis font",
    # text as data
    "text texts string strings substring regex regexp token tokens tokenize tokenise tokenizer tokenization parse",
    "parser parsing format formats formatted formatting formatter encode encoded encoding decode decoded decoding",
    "unicode ascii utf codepoint hash md5 sha sha1 sha256 checksum base64 cipher encrypt decrypt caesar rot13",
    "extract repeat echo complete continue fill input output identical literally exactly",
)
_FORM_PHRASE_WORDS = lexicon("correct capital say write upper lower title camel snake case full half")
_FORM_PHRASE = re.compile(
    r"\bcorrect (?:the|this|these|my|it|any|following)\b|^correct\b|\bcapital [li]\b"
    r"|\bhow (?:do|to|would|can) (?:i |you |we )?(?:say|write)\b"
    r"|\b(?:upper|lower|title|camel|snake)[ -]case|\bcase[ -]sensitive|\b(?:full|half)[ -]?width"
)
_FORM_CHINESE = re.compile(
    "翻译|译成|译为|改写|润色|纠正|改正|校对|错别字|病句|语病|几个字|多少字|多少个字|字数|个字|标点|逗号|句号|问号|引号|顿号|冒号|大写|小写|格式"
    "|拼写|拼音|笔画|笔顺|部首|押韵|平仄|续写|补全|补充完整|填空|造句|句子|语法|逐字|原文|空格|全角|半角|繁体|简体|字符|字母|单词|词语|缩写"
    "|扩写|仿写|断句|正则|编码|解码|加密|解密|排版|复述|重复|读音|怎么读|怎么写|怎么念|怎么说|英语|英文|汉字|符号|数字|表情|文本|文字"
    "|字符串|提取|接龙|对联|下联|上联|成语|写法|读法|换行|分词|统计"
)
_MATERIAL_WORDS = lexicon(
    "translate translates translating translation translations translator interpreter proofread proofreader",
    "proofreading rewrite rewrites rewriting rephrase rephrases rephrasing paraphrase paraphrases paraphrasing",
    "paraphraser grammar spelling spellchecker typos editor copyeditor copyedit transcribe transcriber extract",
    "extracts extracting extraction extractor tokenizer tokenize classify classifier annotate annotator verbatim",
    "autocomplete completion anonymize anonymise redact linguist echo parse parser regex transliterate",
)
_MATERIAL_CHINESE = re.compile(
    "翻译|译员|译者|改写|润色|校对|纠正|纠错|错别字|病句|语法|续写|补全|提取|抽取|复述|扩写|缩写|仿写|转写|分类|标注|脱敏"
)


def is_form_sensitive(text: str, words: frozenset[str]) -> bool:
    """True when the question may be about its own letters, marks or wording; generous, for it only costs hits.

    Args:
        text: the question, tidied.
        words: its ``latin_words``.
    """
    if not _FORM_WORDS.isdisjoint(words):
        return True
    if not _FORM_PHRASE_WORDS.isdisjoint(words) and _FORM_PHRASE.search(text.translate(WIDTH_TABLE).lower()):
        return True
    return not text.isascii() and _FORM_CHINESE.search(text) is not None


def is_material_prompt(text: str) -> bool:
    """True when a system prompt sets a task on the user's text itself (translator, proofreader, extractor).

    Narrower than ``is_form_sensitive``: nearly every system prompt speaks of format, words or sentences.
    """
    return _is_material(text) if len(text) > _MEMO_CHARS else _is_material_memo(text)


def _is_material(text: str) -> bool:
    return not _MATERIAL_WORDS.isdisjoint(latin_words(text)) or _MATERIAL_CHINESE.search(text) is not None


# One system prompt serves thousands of requests, and reading it costs more than the question does.
_MEMO_CHARS = 16_384
_is_material_memo = lru_cache(maxsize=64)(_is_material)
