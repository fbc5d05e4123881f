/** How a verb ends when it does not end well: refused or not held (exit 1), or used wrongly (exit 2). One line each. */

/** The server refused, cannot be reached, or what was asked about does not hold: exit 1. */
export class Refused extends Error {
  override readonly name = 'Refused';
  /** the document to print under `--json`: the server's problem document, or what does not hold */
  readonly document: object | undefined;
  /** the server's HTTP status, where a server spoke */
  readonly status: number | undefined;

  constructor(sentence: string, answer: { readonly document?: object; readonly status?: number } = {}) {
    super(sentence);
    this.document = answer.document;
    this.status = answer.status;
  }
}

/** The command was used wrongly, by flags or settings: exit 2. */
export class WrongUse extends Error {
  override readonly name = 'WrongUse';
}
