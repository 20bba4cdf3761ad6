// Asks the gateway, with the administrator's key where there is one: it stays in this tab, and in no address.

const KEY = "stratacache.key";
const LIMIT = 10_000; // milliseconds

export class Refused extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export function key() {
  return sessionStorage.getItem(KEY) ?? "";
}

export function remember(value) {
  if (value) sessionStorage.setItem(KEY, value);
  else sessionStorage.removeItem(KEY);
}

// JSON of an endpoint under /admin. Throws Refused with the gateway's words, or TypeError when nobody answers.
export async function ask(path, { method = "GET", body, credential = key() } = {}) {
  const headers = {};
  if (credential) headers.authorization = `Bearer ${credential}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  const response = await fetch(`admin/${path}`, {
    method,
    headers,
    body: body === undefined ? undefined : JSON.stringify(body),
    cache: "no-store",
    credentials: "omit",
    redirect: "error",
    signal: AbortSignal.timeout(LIMIT),
  });
  const told = await response.json().catch(() => ({}));
  if (!response.ok) {
    const error = told.error ?? {};
    throw new Refused(response.status, error.code ?? "", error.message ?? `${response.status}`);
  }
  return told;
}

// The same, null where there is no such endpoint or what it shows is not in use.
export async function askIfThere(path) {
  try {
    return await ask(path);
  } catch (error) {
    if (error instanceof Refused && [404, 409, 503].includes(error.status)) return null;
    throw error;
  }
}
