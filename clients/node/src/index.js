export { Submitter } from "./submitter.js";
export { Worker } from "./worker.js";
export { RawJSON } from "./wire.js";
export {
  ClosedError, Fatal, GloomError, JobError, LostError, NotConnectedError, ProtocolError,
  RefusedError, Release, RetryAfter,
} from "./errors.js";
