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
        r"|on)|upcoming|up to date|as of|20(?:2[4-9]|3\d)|live (?:scores?|stream|results?|traffic)"
        r"|just (?:released|announced))\b|现在|今天|今晚|今早|今日|明天|明日|昨天|昨晚|目前|当前|最新"
        r"|最近(?!的(?:机场|地铁|车站|医院))|近期|现任|今年|明年|这周|本周|下周|上周|这个月|本月|下个?月"
        r"|上个月|这周末|周末|此刻|眼下|如今|实时|刚刚|即将|截至|20(?:2[4-9]|3\d)年?"
    ),
    "moving": (
        r"\b(?:weather|forecast|temperature (?:in|outside)|exchange rate|share price|stock price|prices? of"
        r"|price for|cheapest|traffic|news|headlines?|the score|final score|scores of|standings?|in stock"
        r"|outage|release date|come out|coming out|interest rates? (?:now|in)|on sale|discounts?|promotions?"
        r"|deals?|sold out|schedule for|will it rain|trending|population of|open(?:ing)? (?:now|today|on)"
        r"|who won|who is winning|what time is it|delays?|box office|vacanc(?:y|ies)|availab(?:le|ility))\b"
        r"|天气|气温|下雨|汇率|股价|股票.*(?:涨|跌)|油价|金价|房价|行情|比分|比赛结果|新闻|头条|有货|缺货"
        r"|有没有票|余票|排名|榜|路况|堵车|上映|票房|上市时间|什么时候(?:出|发布|上映|开售|开始|公布|开)"
        r"|还有(?:票|货|房|位)|促销|打折|优惠活动|特价|赢了|收盘|开盘|几点了|几号|星期几|崩了|宕机|疫情"
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
        r"\b(?:i(?:'m| am| was| got| have| had| just| feel| bought| ordered| paid| lost| want| need|'d like"
        r"| take| think| keep)|did i|am i|do i have(?! to)|have i|when (?:do|will|did|is|does) (?:i|my)"
        r"|where (?:is|are) my|why (?:was|did|were|has|have) (?:you |i\b|my)|what(?:'s| is| was| are) my"
        r"|show me my|was my|has my|did my|are you sure)\b|我(?:上次|上周|昨天|今天|现在|刚|已经|买|付|想|要"
        r"|还剩|还有|还|下|上个月|这个月|是不是|感觉|觉得|头|登录不|收到|没收到|这|有几|该|什么时候|叫|在)"
        r"|帮我|给我|替我|为我|我的.*(?:到哪|怎么还没|为什么|多少|哪|什么时候|了吗)"
    ),
    "conditional": (
        r"\b(?:if|when|after|before|once|while|unless|until|without|during) (?:i|my|you|your|we|someone"
        r"|people|a|an|the|one)\b|如果|要是|的时候|时(?!候|间)|之后|以后|之前|期间|的话"
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
        r"|javascript) (?:that|to|which|for|in|script|command)\b|\b(?:python|javascript|typescript|java|rust"
        r"|golang|sql|bash|css|html|react|docker\w*|git|regex|json|api|endpoint|algorithm|linked list"
        r"|binary search|stack trace|unit test|null pointer|npm|linux|numpy|pandas)\b|函数|正则|脚本|方法$"
        r"|命令|程序|代码|算法|数组|字符串|编程"
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
        r"|mentioned|told))\b|这(?!周|个?月|种情况|款)|那|它|(?<![吉其])他(?!国|人)|她|上面|下面|以上|上述"
        r"|前面|刚才|另[一外]|第[一二三四五六][个题问步](?!.{4})|附件|两个中"
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
    "pronoun_last": (
        r"\b(?:it|that|this|them|those|these|him|her|there|one)(?: too| again| either| then| now| here"
        r"| as well)? ?[?.!]*$|(?:这个|那个|它|他|她)(?:吗|呢|吧|啊)?[?？。!！]*$"
    ),
    "within": (
        r"\bin (?:it|this|that)\b|\b(?:the|this) (?:line|step|code|formula|sentence|paragraph|function"
        r"|picture|image|photo|message|error|button|link|list|table|word)\b|(?:这|那|上|下)(?:句|段|道|首|行"
        r"|步|幅|张|个)|图片|图中|照片里|链接"
    ),
    "mine_record": (
        r"\b(?:my|our) (?:\w+ )?(?:orders?|refund|application|claim|balance|salary|bill|invoices?|booking"
        r"|flight|appointment|contract|account|subscription|plan|package|parcel|grades?|results?|membership"
        r"|payment|deliver\w*|statement|points|limit|credit score|data plan|usage|shipment|return|ticket"
        r"|reservation|schedule|calendar|inbox|profile|password)\b|我的(?:.{0,4})(?:订单|退款|申请|余额|工资"
        r"|账单|发票|预订|航班|合同|账号|账户|会员|包裹|快递|成绩|积分|额度|贷款|还款|征信|流量|话费)"
    ),
    "mine_device": (
        r"\b(?:my|our) (?:\w+ )?(?:phone|laptop|computer|pc|browser|chrome|wi-?fi|internet|router|printer"
        r"|screen|keyboard|mouse|camera|tv|car|bike|dishwasher|washing machine|oven|fridge|bread|cake|dough"
        r"|plants?|lawn|code|loop|script|component|app|iphone|ipad|android|mac|windows|battery|speakers?"
        r"|headphones|microphone|dog|cat|puppy|kitten|baby|toddler|hair|skin|sink|toilet|engine)\b|(?:手机"
        r"|电脑|打印机|屏幕|路由器|耳机|键盘|空调|洗衣机|冰箱|电视)"
    ),
    "generic_person": (
        r"\b(?:one|someone|somebody|people|persons?|adults?|children|kids|babies|toddlers?|teenagers?|women"
        r"|men|beginners?|students|employees|customers|everyone|foreigners?|companies|humans?)\b|人们|有人"
        r"|大家|成年人|新手|女人|男人|男生|女生|学生|老人|小孩|孕妇|宝宝|员工|外国人|自己"
    ),
    "about_you": (
        r"\b(?:your (?:name|favou?rite|job|age|birthday|weekend|day|opinion|hobb\w+|parents|boyfriend"
        r"|girlfriend)|are you (?!able|allowed|a (?:robot|bot|machine))|do you (?:like|love|know me|remember"
        r"|feel|understand me|want|hate|have (?:feelings|friends|a name|children|kids|a girlfriend"
        r"|a boyfriend|siblings))|did you|you are|you're|would you|have you|know about me|were you"
        r"|how do you like)\b|你(?:叫|几岁|多大|喜欢|爱|是谁|在(?!线)|觉得|好|真|会不会|吃|今天|是男|是女)"
    ),
    "going_on": (
        r"^(?:is|are|was|were|has|have|did|will|when will|when is|when does|who will"
        r"|what will) (?![a-z]+ing\b)(?!(?:gift|credit) )(?:the |a |an |any )?[\w' ]+(?:ing\b|\b(?:win"
        r"|released?|launched?|down|announce\w*|happen|raise|start|end|begin|arrive|close|resign|open"
        r"|change))|要.{1,6}了吗|了没|没有了|开始了吗|出来了吗|什么时候.{0,6}(?:出|来|到|开始|结束|更新|恢复"
        r"|开通)|.了吗[?？]?$"
    ),
    "did": (r"^(?:did|has|have|was|were) |(?:刚才|刚刚|上次|昨|前天|已经).{0,12}|.了[。!！?？]?$"),
    "starts_can_i": (
        r"^(?:can|may|could|do|must|should|am|will|would|did|have) (?:i|we)\b|^我(?:可以|能|要不要|该|需要)"
    ),
    "subjectless": (
        r"^(?:可以|能|要|会|支持|需要|有|是|为什么|怎么|如何|什么时候|多久|多少|几|哪|还|不|没|一般|会不会"
        r"|能不能|有没有|可不可以|包|好)"
    ),
    "i_state": (
        r"\bi(?:'m| am| was|'ve been| have been) (?:an? )?(?:\d+|\w+(?: \w+){0,2} (?:old|weeks?|years?"
        r"|months?))|\bi (?:earn|weigh|live|make|own|work as|hate|love|feel|suffer|take|study)\b"
        r"|\bwe (?:have|are|live)\b|我(?:今年|是|月薪|每月|每个月|身高|体重|住|有|刚|和|跟|喜欢|很|一直|每天"
        r"|在).{2,}"
    ),
    "trouble": (
        r"\b(?:error|exception|crash\w*|fails?|failed|won't|doesn't|can't|cannot|unable|stuck|slow|freez\w*"
        r"|not (?:work|load|open|connect)\w*|keeps?|never|stopped|broken|denied|declined)\b|不了|不上|失败"
        r"|报错|蓝屏|卡顿|很慢|没反应|收不到|打不开|连不|提示|显示|闪退|不通过"
    ),
    "why": (r"\bwhy\b|为什么|为何|为啥|怎么会"),
    "proof": (
        r"\bi(?:'ve| have)? (?:tried|clicked|did|already|checked)\b|试过|按你说|已经.{0,4}(?:试|点|做)"
    ),
    "question_mark": (r"[?？]"),
    "digits": (r"\d"),
    "cry": (
        r"[!！]{2,}|(?i:help|broken|doesn't work|not working|problem|issue|wrong)|坏了|不行|有问题|出问题|急"
        r"|不了$"
    ),
    "future": (
        r"^will (?!i |my |you |we )|\bwill (?:win|survive|happen|there be|be the next)\b|^who will\b"
        r"|\bgoing to (?!\w+ (?:in|to|by))\b|\bwhen will\b|\bplanned\b|\bnext (?:season|quarter|generation"
        r"|version|release|episode)\b|\b(?:is|are|does|do|has|have) (?:[\w.']+ ){1,4}still\b|会.{0,8}(?:爆发"
        r"|涨|跌|离婚|赢|倒闭|好转|下雨|降价|开放)吗|谁会|还有机会|还会.{1,8}吗|第三次世界大战"
    ),
    "event": (
        r"\b(?:strikes?|power cuts?|blackout|hurricane|typhoon|elections?|polls|protests?|demonstrations?"
        r"|festival|exhibitions?|concerts?|lockdown|wildfires?|recession|maintenance|dating|divorced"
        r"|breaking up|dead|leading|people saying|playing|reached|finished|happening|closing|hiring"
        r"|laying)\b|\bhow did \w+ (?:play|do|perform|go|close)\b|罢工|停电|台风|地震|大选|演唱会|展览"
        r"|离婚了|去世|还活着|晚点|准点|还开着"
    ),
    "age_of": (
        r"^how old is (?!the |a |an )[a-z]+ [a-z]+|^how (?:rich|tall) is (?!the |a |an )[a-z]+ [a-z]+"
        r"|今年多大|多少岁了"
    ),
    "own_name": (
        r"\b[a-z]+'s (?:next|last|first|current|latest|new) \w+|\b(?:my|our) (?:son|daughter|wife|husband"
        r"|mother|father|mom|dad|brother|sister|friend|boss|kids?|child|children|boyfriend|girlfriend|ex"
        r"|neighbou?r|grandmother|team|family)\b|我(?:的)?(?:老公|老婆|男朋友|女朋友|儿子|女儿|妈|爸|奶奶"
        r"|爷爷|孩子|家|同事|老板|朋友)|房东"
    ),
    "should_i": (
        r"^should (?:i|we|my)\b|, should (?:i|we)\b|\bwhich (?:\w+ ){0,3}should (?:i|we)\b"
        r"|\bwhat (?:\w+ )?should (?:i|we|my) (?!do\b)|\bwhere should (?:i|we)\b|该不该|要不要|我该|我应该"
    ),
    "policy_i": (
        r"\b(?:do (?:i|we) (?:have to|need|pay|get|lose)|can (?:i|we) (?:use|get|have|share|add|change|pay"
        r"|return|cancel|bring|combine|import|invite|install|open|still|leave|switch|pick|order|transfer"
        r"|export|sign|exchange|book|park|wash|freeze|carry)|must (?:i|we)|will (?:i|my \w+"
        r"|my \w+ \w+) (?:be|lose|get|have to)|(?:is|are) my \w+(?: \w+)? \w+ed (?:if|when|after|safely)"
        r"|^can my (?:boss|bank|landlord|employer|doctor|neighbou?r|company|school|partner|manager|insurer"
        r"|insurance)|am i (?:allowed|required|obliged))\b"
    ),
    "bare_question": (
        r"^(?:what(?:'s| is| are) the (?:differences?|price|cost|best|problem|rules|hours)|how (?:to|do i"
        r"|can i) (?:fix|start|use|pay|cancel|do|do that|join|apply)|how does it work|which (?:is|one is"
        r"|one) (?:the )?(?:better|best)|what now|how|why|when|where|who|(?:at|in|on|for|from|to|with"
        r"|by) (?:what|which|whom?)(?: \w+)?|(?:是)?什么意思|(?:请问)?(?:怎么|如何|怎样)(?:弄|用|办|做|取消"
        r"|开通|还|撤销|关|设置|申请|操作|使用|登录|走|说)|(?:为什么|怎么)(?:不行|不能|这样)|(?:哪个|哪种"
        r"|什么)(?:好|最好|便宜|意思)|多少钱|多久|有什么区别)[?？!。.]*$"
    ),
    "talk": (
        r"\bwhat do you mean\b|\bwhy do you (?:say|think)|\bhow do you know\b|\bbe more specific\b"
        r"|\byour (?:answer|solution|explanation|suggestion|last|first|advice)\b|\b(?:here(?:'s| is)"
        r"|below is|see) (?:my|the|a|what)\b|\b(?:line|step|question|option|point|number|page|paragraph"
        r"|slide|row|column) \d|\b(?:what|who|anything|how|where) else\b|\bthe (?:last|previous|second|third"
        r"|other|first) (?:formula|one|option|question|part|sentence|example|line|step|paragraph|link"
        r"|answer)\b|\b(?:in|with) (?:bullet points|other words|more detail)\b|第.(?:行|步|题|段|页|问)"
        r"|上一(?:步|个|条)|我第一个|结果为什么|作者|你(?:说|刚|上)|后来"
    ),
    "generic_i": (
        r"\b(?:how (?:do|can|should|could|would) (?:i|you|we)|what (?:do|can|should) (?:i|you|we) do"
        r"|what(?:'s| is| could be) (?:the reason|causing|wrong with)|any ideas|what should i try|how (?:to"
        r"|do you) (?:fix|solve)|where (?:do|can) i)\b|怎么(?:办|解决|处理|弄|回事|找回|恢复)|是什么原因"
        r"|如何解决"
    ),
    "assistant": (
        r"\b(?:what|which) (?:can|languages|things) (?:can )?you\b|\bcan you (?:help|speak|do|understand)\b"
        r"|\bare you a\b|\bwho (?:made|built|created|developed) you\b|\bdo you have access\b"
        r"|\bhelp me with\b|你(?:能|会|可以).{0,6}(?:做什么|说|帮)|你是谁开发|你是.{0,4}(?:机器人|AI|ai)"
    ),
    "convert": (
        r"^(?:convert|calculate|compute|name|list|give me an example|example of|capital of|sum of"
        r"|square root|recipe for|tips|synonym|opposite|plural|population|author|definition|meaning)\b"
        r"|^\w+ meaning$|(?:的)(?:首都|作者|平方根|面积|人口|公式|英文|反义词|近义词|代表作|做法|步骤|方法"
        r"|意思|区别|用途|原理|特点|好处)[?？]?$|最(?:高|长|大|小|深|快|冷|热)的"
    ),
}
