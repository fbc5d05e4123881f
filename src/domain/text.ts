/**
 * Every sentence that a caller may read, in zh-CN and en, in one place. Keys are the stable codes of the contract.
 */

/** Languages we speak; zh-CN where the caller names none of them. */
export type Language = 'zh-CN' | 'en';

/** Titles of problem documents, by code. */
export const TITLES = {
  busy: { 'zh-CN': '当前参与人数过多，请稍后再试', en: 'Too many people right now, please try again shortly' },
  invalid: { 'zh-CN': '请求有误', en: 'The request is not valid' },
  body_too_large: { 'zh-CN': '请求内容过大', en: 'The request body is too large' },
  not_json: { 'zh-CN': '只接受 JSON', en: 'Only JSON is accepted' },
  headers_too_large: { 'zh-CN': '请求头过大', en: 'The request headers are too large' },
  request_timeout: { 'zh-CN': '请求接收超时', en: 'The request took too long to arrive' },
  method_not_allowed: { 'zh-CN': '不支持该请求方法', en: 'This method is not allowed here' },
  not_found: { 'zh-CN': '没有这个地址', en: 'There is nothing here' },
  unauthenticated: { 'zh-CN': '请先登录', en: 'Please sign in first' },
  forbidden: { 'zh-CN': '没有权限', en: 'You may not do this' },
  unknown_activity: { 'zh-CN': '活动不存在', en: 'There is no such activity' },
  unknown_receipt: { 'zh-CN': '凭证不存在', en: 'There is no such receipt' },
  unknown_order: { 'zh-CN': '订单不存在', en: 'There is no such order' },
  key_reused: {
    'zh-CN': '该请求令牌已用于不同数量的购买',
    en: 'This idempotency key was used for another quantity',
  },
  already_bought: { 'zh-CN': '您已参与过本活动', en: 'You have already bought in this activity' },
  not_open: { 'zh-CN': '活动尚未开始', en: 'The activity has not started yet' },
  paused: { 'zh-CN': '活动暂停中', en: 'The activity is paused' },
  ended: { 'zh-CN': '活动已结束', en: 'The activity has ended' },
  sold_out: { 'zh-CN': '已售罄', en: 'Sold out' },
  not_ready: { 'zh-CN': '活动准备中，请稍后再试', en: 'The activity is not ready, please try again shortly' },
  in_doubt: {
    'zh-CN': '结果确认中，请用同一请求再试一次，不会重复购买',
    en: 'We do not know the outcome yet: ask again with the same key, you will not buy twice',
  },
  order_closed: { 'zh-CN': '订单已不能取消', en: 'This order can no longer be cancelled' },
  payment_not_offered: { 'zh-CN': '本活动无需在此付款', en: 'No payment is taken here for this activity' },
  unknown_dead_letter: { 'zh-CN': '死信不存在', en: 'There is no such dead letter' },
  wrong_state: { 'zh-CN': '活动当前状态不允许此操作', en: 'The activity is not in a state that allows this' },
  activity_exists: { 'zh-CN': '活动编号已被使用', en: 'There is an activity of this id already' },
  not_offered: { 'zh-CN': '尚不支持该选项', en: 'This option is not offered yet' },
  version_required: {
    'zh-CN': '修改前请先读取活动，并在 If-Match 中带上版本',
    en: 'Read the activity first and name its version in If-Match',
  },
  old_version: { 'zh-CN': '活动已被他人修改，请按最新内容重试', en: 'The activity has been changed since you read it' },
  preheat_failed: { 'zh-CN': '预热核对未通过', en: 'The preheat does not agree with the database' },
  unsettled: { 'zh-CN': '尚有未了结事项，不能结算', en: 'Something is still open, so the books cannot be closed' },
  dead_letter_closed: { 'zh-CN': '死信已处理', en: 'This dead letter has been dealt with already' },
  internal: { 'zh-CN': '系统出错，请稍后再试', en: 'Something went wrong on our side, please try again' },
} as const satisfies Record<string, Record<Language, string>>;

/** What is wrong with one field of a request, by JSON-schema keyword; `{field}` and `{limit}` are filled in. */
export const FIELD_FAULTS = {
  required: { 'zh-CN': '缺少 {field}', en: '{field} is missing' },
  additionalProperties: { 'zh-CN': '不认识的字段 {field}', en: '{field} is not known here' },
  type: { 'zh-CN': '{field} 的类型必须是 {limit}', en: '{field} must be of type {limit}' },
  minimum: { 'zh-CN': '{field} 不能小于 {limit}', en: '{field} must not be less than {limit}' },
  maximum: { 'zh-CN': '{field} 不能大于 {limit}', en: '{field} must not be more than {limit}' },
  pattern: { 'zh-CN': '{field} 的格式有误', en: '{field} does not have the right form' },
  syntax: { 'zh-CN': '请求内容不是有效的 JSON', en: 'The body is not valid JSON' },
  limit: { 'zh-CN': '{field} 超过每人限购 {limit} 件', en: '{field} is above the limit of {limit} a buyer' },
  length: { 'zh-CN': '{field} 须为 1 到 {limit} 个字符', en: '{field} must have 1 to {limit} characters' },
  control: { 'zh-CN': '{field} 不能含控制字符', en: '{field} must not hold control characters' },
  normal_form: { 'zh-CN': '{field} 须为 Unicode NFC 形式', en: '{field} must be in Unicode normal form C' },
  currency: { 'zh-CN': '{field} 须为 ISO 4217 货币代码', en: '{field} must be an ISO 4217 code' },
  web_address: { 'zh-CN': '{field} 须为 http 或 https 地址', en: '{field} must be an http or https address' },
  instant: {
    'zh-CN': '{field} 须为带时区的 RFC 3339 时间',
    en: '{field} must be an instant as RFC 3339 writes it, with a zone',
  },
  days_ahead: { 'zh-CN': '{field} 最多在 {limit} 天之后', en: '{field} must be at most {limit} days ahead' },
  after: { 'zh-CN': '{field} 须晚于 {limit}', en: '{field} must be after {limit}' },
  future: { 'zh-CN': '{field} 须晚于现在', en: '{field} must be in the future' },
  amount: {
    'zh-CN': '{field} 与 perBuyerLimit 的乘积不能超过 {limit}',
    en: '{field} times perBuyerLimit must not be more than {limit}',
  },
  thousandths: { 'zh-CN': '{field} 最多三位小数', en: '{field} must have at most three decimals' },
  strict_only: {
    'zh-CN': '{field} 大于 1 时 answerWhen 须为 ordered',
    en: '{field} must be 1 unless answerWhen is ordered',
  },
  enum: { 'zh-CN': '{field} 不是可选值之一', en: '{field} is not one of the values known here' },
  minProperties: { 'zh-CN': '没有要修改的内容', en: 'There is nothing to change in it' },
  version: { 'zh-CN': '{field} 须为一个版本，如 "3"', en: '{field} must be one version, like "3"' },
  not_offered: { 'zh-CN': '尚不支持 {field}', en: '{field} is not offered yet' },
  other: { 'zh-CN': '{field} 无效', en: '{field} is not valid' },
} as const satisfies Record<string, Record<Language, string>>;

/** Why a move of an activity is refused, by the reason's name; `state`: its state does not allow it. */
export const MOVE_REFUSALS = {
  state: { 'zh-CN': '活动当前状态不允许此操作', en: 'its state does not allow it' },
  own: { 'zh-CN': '不能审核自己创建或修改的活动', en: 'who made or changed a plan may not approve it' },
  over: { 'zh-CN': '活动结束时间已过', en: 'its end has passed' },
  last_minute: { 'zh-CN': '距开始不足一分钟', en: 'it opens within a minute' },
  not_verified: { 'zh-CN': '预热尚未核对通过', en: 'there is no verified preheat to confirm' },
  not_confirmed: { 'zh-CN': '预热尚未确认', en: 'its preheat is not confirmed' },
  paused: { 'zh-CN': '活动已暂停', en: 'it is paused already' },
  not_paused: { 'zh-CN': '活动未暂停', en: 'it is not paused' },
  only_in_sale: {
    'zh-CN': '进行中的活动只能修改 endsAt 和 perBuyerLimit',
    en: 'of a running sale only endsAt and perBuyerLimit can be changed',
  },
  not_due: { 'zh-CN': '时间未到', en: 'it is not due yet' },
} as const satisfies Record<string, Record<Language, string>>;

/** A sentence about one field. */
export function fieldFault(kind: string, language: Language, values: { field: string; limit?: unknown }): string {
  const known = Object.hasOwn(FIELD_FAULTS, kind) ? (kind as keyof typeof FIELD_FAULTS) : 'other';
  // by functions: a field's name is the caller's text and may hold `$&` or `{limit}`
  return FIELD_FAULTS[known][language].replaceAll(/\{(field|limit)\}/g, (_, name) =>
    name === 'field' ? values.field : String(values.limit),
  );
}

/** Code of a problem document. */
export type ProblemCode = keyof typeof TITLES;

const WEIGHT = /^\s*q=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)\s*$/;

/**
 * The caller's language by `Accept-Language`: the named one with the highest weight, zh-CN where none is ours.
 * Every `zh` counts as zh-CN and every `en` as en.
 */
export function chooseLanguage(header: string | undefined): Language {
  if (header === undefined || header.length > 200) return 'zh-CN';
  let best: Language = 'zh-CN';
  let bestWeight = 0;
  for (const part of header.split(',')) {
    const [name = '', ...parameters] = part.trim().toLowerCase().split(/\s*;/);
    const language = /^en(-|$)/.test(name) ? 'en' : /^(zh(-|$)|\*$)/.test(name) ? 'zh-CN' : undefined;
    if (language === undefined) continue;
    // without a weight it counts 1; with one that is none it does not count (RFC 9110 §12.4.2)
    const weight = parameters.length === 0 ? 1 : Number(WEIGHT.exec(parameters.join(';'))?.[1] ?? 0);
    if (weight > bestWeight) [best, bestWeight] = [language, weight];
  }
  return best;
}
