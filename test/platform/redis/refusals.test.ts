/** Speaks for `refusals.ts`: what each failure proves. The real servers' words are in `link.redis.test.ts`. */
import { describe, expect, test } from 'vitest';
import { faultOf, NotConnected } from '../../../src/platform/redis/refusals.ts';

/** An error as ioredis makes it from a server's error reply. */
function reply(text: string): Error {
  return Object.defineProperty(new Error(text), 'name', { value: 'ReplyError' });
}

describe('what a failed call proves', () => {
  test.each([
    [
      'a reply that nothing began',
      'redis_refused',
      true,
      [
        reply('NOSCRIPT No matching script. Please use EVAL.'),
        reply('MOVED 3999 127.0.0.1:6381'),
        reply('ASK 3999 127.0.0.1:6381'),
        reply('TRYAGAIN Multiple keys request during rehashing of slot'),
        reply('CLUSTERDOWN Hash slot not served'),
        reply("READONLY You can't write against a read only replica."),
        reply("READONLY You can't write against a read only replica. script: 42fb, on @user_script:1."),
        reply('NOREPLICAS Not enough good replicas to write.'),
        reply('MISCONF Errors writing to the AOF file: No space left on device'),
        reply("OOM command not allowed when used memory > 'maxmemory'."),
        reply('LOADING Redis is loading the dataset in memory'),
        reply("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."),
        reply('BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.'),
        reply('BUSY'),
      ],
    ],
    [
      'a call that no socket saw',
      'redis_refused',
      true,
      [
        new NotConnected('not connected to Redis'),
        new Error("Stream isn't writeable and enableOfflineQueue options is false"),
        new Error("Cluster isn't ready and enableOfflineQueue options is false"),
        new Error('All keys in the pipeline should belong to the same slots allocation group'),
      ],
    ],
    [
      'a call that may have run',
      'redis_unknown',
      true,
      [
        new Error('Command timed out'),
        new Error('Connection is closed.'), // ioredis says it of written calls, too
        new Error(
          'Reached the max retries per request limit (which is 0). Refer to "maxRetriesPerRequest" option for details.',
        ),
        new Error('Command aborted due to connection close'),
        new Error('Too many Cluster redirections. Last error: ReplyError: TRYAGAIN Multiple keys request'),
        new Error('READONLY said by nobody'), // not a reply: the client made it up
        'not even an error',
      ],
    ],
    [
      'an error reply that is not in the list',
      'redis_unknown',
      false,
      [
        reply('WRONGTYPE Operation against a key holding the wrong kind of value script: 42fb, on @user_script:1.'),
        reply('ERR Script killed by user with SCRIPT KILL... script: 694a, on @user_script:1.'),
        reply('ERR READONLY in second place'),
        reply('BUSYGROUP Consumer Group name already exists'), // one word, not BUSY
        reply('BUSYKEY Target key name already exists.'),
        reply('NOPERM this user has no permissions'),
        reply('EXECABORT Transaction discarded because of previous errors.'),
        reply('UNBLOCKED client unblocked via CLIENT UNBLOCK'),
        reply(''),
      ],
    ],
  ] as const)('%s is %s, retryable %s', (_title, code, retryable, errors) => {
    for (const error of errors) {
      expect(faultOf(error, 'test'), String(error)).toMatchObject({ code, retryable, cause: error, message: 'test' });
    }
  });
});
