"""What the named signals of a question look for: patterns over its lower-case text, English and Chinese together.

One weight belongs to each, so a word added here works in every domain without being in a training question; after a
change the weights must be trained anew.
"""

from __future__ import annotations

from typing import Final

PATTERNS: Final = {
    "starts_how": (
        r"^(?:(?:hi|hey|hello|please|so|and|ok|okay)[, ]+)*(?:(?:can|could|would) (?:you|u"
        r"|someone) (?:please )?(?:tell|explain|show)(?: to)?(?: me)? )?(?:how|steps|best way|what(?:'s"
        r"| is) the (?:best|easiest|right|correct|fastest|proper) way)\b"
    ),
    "how_to": (
        r"\bhow (?:to|do|can|should|would|does one|could)\b|\bwhat (?:should|can|do) (?:i|you|one|we) do\b"
        r"|\bhow do i\b|\brecipe for\b|\bwhat now$|怎么(?!样|还没|又)|怎样|如何|怎麼|咋(?!样)|步骤|做法|办法"
        r"|方法|流程|怎么办|该怎么|手续"
    ),
    "how_much": (
        r"\bhow (?:much|many|long|far|old|often|big|tall|high|fast|deep|heavy|hot|cold)\b|多少|多久|多长"
        r"|多高|多大|多远|几(?:天|个|年|小时|次|种|块|张|岁)"
    ),
    "definition": (
        r"^(?:what(?:'s| is| are|s)|explain|define|describe|whats)\b|\b(?:meaning of|definition of"
        r"|difference between|differences? between|stands? for|define|definition|meant by)\b"
        r"|\bwhat does .{1,50} mean\b|\bmean(?:s)?\?*$|(?:什么是|是什么|什么叫|是啥|啥是|何谓|指的是|定义"
        r"|含义|什么意思|解释一下|的区别|有什么(?:不同|区别)|的意思)"
    ),
    "wh_fact": (
        r"^(?:who|when|where|which|in which|at what|in what|why|is|are|does|do|can|did|was|were|has|must"
        r"|will) |^what (?!should|did i|about|if)|谁|哪(?:里|个|年|些|儿|国|座|种|位|一)|为什么|是不是"
        r"|能不能|可以.*吗|是.*吗|几[^乎]"
    ),
    "now": (
        r"\b(?:now|today|tonight|tomorrow|yesterday|current(?:ly)?|latest|newest|recent(?:ly)?|nowadays"
        r"|these days|so far|at present|presently|at the moment|right now|this (?:week|month|year|morning"
        r"|evening|afternoon|weekend|season|summer|winter|quarter|semester|term)|next (?:week|month|year"
        r"|monday|tuesday|wednesday|thursday|friday|saturday|sunday|weekend|season|match|game|train|bus"
        r"|flight|race|election|round)|last (?:night|week|weekend|month)|yet|still (?:open|available|valid"
        r"|on)|upcoming|up to date|as of|20(?:2[4-9]|3\d)|live|just (?:released|announced))\b|现在|今天|今晚"
        r"|今早|今日|明天|明日|昨天|昨晚|目前|当前|最新|最近(?!的(?:机场|地铁|车站|医院))|近期|现任|今年"
        r"|明年|这周|本周|下周|上周|这个月|本月|下个?月|上个月|这周末|周末|此刻|眼下|如今|实时|刚刚|即将"
        r"|截至|20(?:2[4-9]|3\d)年?"
    ),
    "moving": (
        r"\b(?:weather|forecast|temperature (?:in|outside)|exchange rate|share price|stock price|prices? of"
        r"|price for|cheapest|traffic|news|headlines?|score|standings?|in stock|outage|release date|come out"
        r"|coming out|interest rates? (?:now|in)|on sale|discounts?|promotions?|deals?|sold out|schedule for"
        r"|will it rain|trending|population of|open(?:ing)? (?:now|today|on)|who won|who is winning"
        r"|what time is it|delays?|box office|vacanc(?:y|ies)|availab(?:le|ility))\b|天气|气温|下雨|汇率"
        r"|股价|股票.*(?:涨|跌)|油价|金价|房价|行情|比分|比赛结果|新闻|头条|有货|缺货|有没有票|余票|排名|榜"
        r"|路况|堵车|上映|票房|上市时间|什么时候(?:出|发布|上映|开售|开始|公布|开)|还有(?:票|货|房|位)|促销"
        r"|打折|优惠活动|特价|赢了|收盘|开盘|几点了|几号|星期几|崩了|宕机|疫情"
    ),
    "holder": (
        r"\b(?:who(?:'s| is) the (?:\w+ ){0,3}(?:president|prime minister|ceo|king|queen|mayor|chancellor"
        r"|champion|leader|minister|coach|manager|captain|head|chair\w*|richest|owner|governor|pope)"
        r"|record holder)\b|(?:总统|总理|首相|主席|市长|国王|CEO|ceo|主教练|队长|首富|冠军|部长|校长)是谁"
        r"|谁是.*(?:总统|总理|首相|冠军|首富|教练)"
    ),
    "mine": (r"\b(?:my|mine|our)\b|我的|我们家|我家|我老[婆公]|我女儿|我儿子|我妈|我爸|我孩子"),
    "i": (r"\b(?:i|i'm|i've|i'd|i'll|me|myself|im|ive)\b|我"),
    "how_i": (
        r"\b(?:how (?:do|can|should|could|would) i|can i|may i|do i (?:need|have)|should i|if i|what (?:do"
        r"|can|should) i do|am i (?:allowed|entitled))\b"
    ),
    "i_did": (
        r"\b(?:i(?:'m| am| was| got| have| had| just| can't| cannot|'ve| feel| bought| ordered| paid| lost"
        r"| want| need|'d like| take| think| keep)|did i|am i|do i have|have i|when (?:do|will|did|is"
        r"|does) (?:i|my)|where (?:is|are) my|why (?:was|is|did|were|are|has|can't|am) (?:you |i\b|my)"
        r"|why (?:was|is|did) (?:my|i)|what(?:'s| is| was| are) my|show me my|is my|was my|has my|did my"
        r"|are my|are you sure)\b|我(?:上次|上周|昨天|今天|现在|刚|已经|买|付|想|要|还剩|还有|还|下|上个月"
        r"|这个月|是不是|感觉|觉得|头|登录不|收到|没收到|这|有几|该|什么时候|叫|在)|帮我|给我|替我|为我"
        r"|我的.*(?:到哪|怎么还没|为什么|多少|哪|什么时候|了吗)"
    ),
    "act": (
        r"^(?:please |pls |can you |could you |hey |ok )*(?:cancel|book|order|transfer|send|call|text|remind"
        r"|set|schedule|turn (?:on|off)|switch (?:on|off)|play|add|delete|remove|reserve|upgrade|change|move"
        r"|update|unlock|block|refund|pay|increase|rotate|enrol\w*|renew|reset|check|resend|buy|sign me"
        r"|log me|start|stop|open|close|lock|put|find me|show me|read me|read|activate|register me|extend"
        r"|raise) |^(?:请)?(?:帮我|给我|替我)|^把|^给.{1,6}(?:打电话|转|发)|^(?:提醒我|定一?个|订|预订"
        r"|取消我|列出|念一下|打开|关掉|播放)"
    ),
    "recommend": (
        r"\b(?:should i (?:buy|get|choose|wear|eat|read|watch|invest|go|see)|recommend|suggest(?:ion)?s?"
        r"|what should i|which .* should i|near me|nearby|for me|would i)\b|推荐|该买|适合我|附近|选哪|买哪"
    ),
    "creative": (
        r"\b(?:write|compose|invent|imagine|pretend|brainstorm|draft|make up|come up with|create|design"
        r"|generate|role-?play|act as|suggest|think of|tell me a (?:joke|story|bedtime)|sing|in the style of"
        r"|give me (?:some |\w+ )?(?:ideas?|names?)|let's play|plan a)\b|写(?:一|首|篇|个|段|封|条|份|则|几"
        r"|点)|作一首|编(?:一|个|段|首|几)|假如你|假装|扮演|起(?:个|一个|几个)?.{0,8}名|想(?:个|几|一|十|些"
        r"|\d)|设计(?:一|个|几)|创作|策划|讲(?:个|一个|段)|来(?:一|首|段|个|点)|以.*为题|用.{1,8}(?:的风格"
        r"|的口吻|风格)|文案|构思|续写|虚构|发明(?:一|个)"
    ),
    "work": (
        r"\b(?:poem|story|haiku|limerick|song|lyrics|slogan|tagline|essay|speech|joke|riddle|letter to"
        r"|review for|ideas|itinerary|dialogue|rap|names? for|toast|sonnet|screenplay|script for|tweet"
        r"|post about|mascot|logo|jingle|fairy tale|advert|bio)\b|诗|故事|歌词|广告语|口号|作文|演讲|笑话"
        r"|谜语|段子|对联|剧本|小说|情书|祝福语|吉祥物|标语|创意|台词"
    ),
    "code_request": (
        r"\b(?:function|query|regex|regular expression|script|class|method|program|code|sql|bash|python|java"
        r"|javascript) (?:that|to|which|for|in|script|command)\b|函数|正则|SQL|sql|脚本|方法$|命令"
    ),
    "material": (
        r"[:：]\s*\S.{8,}$|\b(?:translate|summari[sz]e|rewrite|rephrase|proofread|correct|paraphrase|shorten"
        r"|review|refactor|fix|debug|improve|polish)\b|翻译|总结|概括|改写|润色|改正|缩写|精简|改一下|修改"
        r"|校对|缩短|改得|优化一下"
    ),
    "deictic": (
        r"\b(?:this|that|these|those|it|its|they|them|their|he|him|his|she|her|there|above|below"
        r"|the (?:first|second|third|other|last|next|previous|same|following|attached) (?:one|step|option"
        r"|part|point|answer|text|code|paragraph|question)?|the other|both of|the two|again|you (?:said"
        r"|mentioned|told))\b|这(?!周|个?月|种情况|款)|那|它|他(?!国|人)|她|上面|下面|以上|上述|前面|刚才"
        r"|另[一外]|第[一二三四五六]个|附件|两个中"
    ),
    "bare_pronoun": (
        r"^(?:and |so |but |then |ok |okay |well )*(?:(?:is|does|do|can|will|was|did|are|has|would|could"
        r"|should) (?:it|that|this|they|he|she|those|these|there)|(?:what|how|when|where|why|who|which)(?:'s"
        r"| is| does| did| do| are| about| if| can i| should i| time| much| long| was)* (?:it|that|this|they"
        r"|them|he|she|there|those|these)|which (?:one|of))\b|^(?:那|这个?|它|他|她|它们|这两)(?!款|种|年)"
    ),
    "ellipsis": (
        r"^(?:and|what about|how about|but|or|also|then|so what|what if|no,|ok(?:ay)?,?|yes,?|now|why\??$"
        r"|instead|same)\b|呢[?？]?$|^(?:再|还|继续|接着|不对|不是|还是|没有的话|改成|能换|要(?:在|多)"
        r"|为什么[?？]?$|什么意思|有没有(?!.{6}))|的话[?？]?$"
    ),
    "for_it": (
        r"\b(?:for|with|of|in|on|about|to|from|do|use|take|make|turn|fix|explain|repeat|change) (?:it|that"
        r"|this|them|those|these|him|her)\b"
    ),
    "generic_you": (
        r"\b(?:do|can|will) you (?:ship|offer|accept|have|charge|sell|deliver|support|provide|take)\b"
        r"|你们(?:支持|有|提供|接受|收|能|可以)|支持.*吗"
    ),
    "policy": (
        r"\b(?:policy|policies|fee|fees|charge|allowed|required|requirement|eligible|limit|minimum|maximum"
        r"|cost to|warranty|rules?)\b|政策|规定|要求|条件|手续费|需要.*吗|收费|费用|保修|材料"
    ),
    "and_joined": (r"\b(?:i'm|i am|my|i have) .*\b(?:and|but)\b.*\?|我.*，.*我|我.*，.*吗"),
    "symptom": (
        r"\b(?:i|my \w+) (?:have|has|had|feel|feels|hurts?|can't sleep|vomit\w*|am pregnant)\b|我(?:头|胃"
        r"|肚子|牙|腰|嗓子|胸|发烧|怀孕)|(?:疼|痛|烧|咳).{0,6}(?:天|周|个月)了"
    ),
    "finance": (
        r"\b(?:bank\w*|loans?|mortgages?|credit|debit|card|invest\w*|stocks?|shares?|bonds?|etfs?|interest"
        r"|tax\w*|insur\w*|pension|savings?|dividends?|exchange rate|currency|bitcoin|crypto\w*|overdraft"
        r"|pay(?:ment|ments)?|money|balance|salary|apr|iban|deposit|deductibles?|premiums?|fund)\b|银行|贷款"
        r"|房贷|信用|借记|投资|股|债券|基金|利[率息]|税|保险|保单|养老金|存款|分红|汇率|外币|比特币|理财"
        r"|透支|转账|汇款|余额|还款|定投|黄金|理赔|保费|社保|公积金|工资"
    ),
    "medical": (
        r"\b(?:symptoms?|disease|diabet\w*|blood|fever|pain|headaches?|doctors?|pills?|dose|dosage|medic\w*"
        r"|drugs?|vaccin\w*|pregnan\w*|flu|virus|vitamins?|allerg\w*|cancer|surgery|cholesterol|hospital"
        r"|therap\w*|antibiotics?|ibuprofen|rash|infection|injur\w*|sick|health|heart|treat|depress\w*"
        r"|anxiety|prescription|asthma)\b|症|病|药|血|发烧|疼|痛|医|疫苗|怀孕|感冒|流感|病毒|维生素|过敏|癌"
        r"|手术|胆固醇|治疗|剂量|孕|疹|头晕|咳嗽|处方|急诊|体检|抑郁|焦虑"
    ),
    "account": (
        r"\b(?:account|password|log ?in|sign ?in|sign up|orders?|refund|return|subscription|subscribe|cancel"
        r"|deliver(?:y|ed)|parcel|package|shipment|invoice|membership|profile|e-?mail address|verification"
        r"|unlock|tracking|booking|reservation|contract|sim|plan|username|bill|charged)\b|账号|账户|帐号"
        r"|密码|登录|登陆|注册|订单|退款|退货|退订|取消|物流|快递|包裹|发票|会员|验证码|解锁|预订|套餐|合约"
        r"|注销|绑定|实名|收货|改签|积分|话费|充值"
    ),
    "greeting": (
        r"^(?:hi|hey|hello|thanks|thank you|good (?:morning|evening|night|afternoon)|bye|how are you"
        r"|nice to meet|lol|ok|okay|cool|great)\b|^(?:你好|您好|谢谢|早上好|晚上好|再见|好的|嗯|哈哈|在吗)"
    ),
    "question_mark": (r"[?？]"),
    "digits": (r"\d"),
    "cry": (
        r"[!！]{2,}|(?i:help|broken|doesn't work|not working|problem|issue|wrong)|坏了|不行|有问题|出问题|急"
        r"|不了$"
    ),
}
