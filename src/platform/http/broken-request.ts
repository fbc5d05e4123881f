/**
 * What came in is no HTTP request, or none that ever got whole: headers beyond the limit, bytes that do not parse, a body
 * that is malformed or too slow. Answered as everything else is, by a problem document, and the connection is closed.
 *
 * Promises never to answer in the place of another request: where a whole one is still under way on this connection, the
 * connection is cut without a word. Its sender then knows that he does not know, and asks again with the same key.
 */
import type { Socket } from 'node:net';
import { chooseLanguage, fieldFault, TITLES, type ProblemCode } from '../../domain/text.ts';
import { answerUnderWay } from './connections.ts';
import { PROBLEM_TYPE } from './problem.ts';

const PROBLEMS: Readonly<Record<string, { status: string; code: ProblemCode }>> = {
  HPE_HEADER_OVERFLOW: { status: '431 Request Header Fields Too Large', code: 'headers_too_large' },
  ERR_HTTP_REQUEST_TIMEOUT: { status: '408 Request Timeout', code: 'request_timeout' },
};
const MALFORMED: { status: string; code: ProblemCode } = { status: '400 Bad Request', code: 'invalid' };

/** Handles `clientError` of node:http. */
export function answerBrokenRequest(error: Error & { readonly code?: string }, socket: Socket): void {
  const underWay = answerUnderWay(socket);
  const mayAnswer = underWay === undefined || (!underWay.headersSent && !underWay.req.complete);
  if (!socket.writable || error.code === 'ECONNRESET' || !mayAnswer) {
    socket.destroy();
    return;
  }
  const { status, code } = PROBLEMS[error.code ?? ''] ?? MALFORMED;
  const language = chooseLanguage(underWay?.req.headers['accept-language']);
  const about =
    code === 'invalid' ? { field: 'request', detail: fieldFault('other', language, { field: 'request' }) } : {};
  const body = JSON.stringify({ code, title: TITLES[code][language], status: Number(status.slice(0, 3)), ...about });
  const head = [
    `HTTP/1.1 ${status}`,
    `content-type: ${PROBLEM_TYPE}`,
    `content-length: ${Buffer.byteLength(body)}`,
    'cache-control: no-store',
    'connection: close',
  ];
  socket.end(`${head.join('\r\n')}\r\n\r\n${body}`, () => socket.destroy());
}
