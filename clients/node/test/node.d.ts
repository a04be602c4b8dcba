// The part of Node's types that the client uses, so that it can be checked without
// packages.

interface Buffer extends Uint8Array {
  readonly length: number;
  readUInt32BE(at: number): number;
  writeUInt32BE(value: number): number;
  subarray(from?: number, to?: number): Buffer;
  toString(encoding?: string, from?: number, to?: number): string;
}
declare var Buffer: {
  from(data: string | Uint8Array): Buffer;
  alloc(size: number): Buffer;
  allocUnsafe(size: number): Buffer;
  concat(parts: Buffer[], size?: number): Buffer;
  byteLength(text: string): number;
};

interface AbortSignal {
  readonly aborted: boolean;
  readonly reason: any;
  throwIfAborted(): void;
  addEventListener(event: "abort", listener: () => void): void;
  removeEventListener(event: "abort", listener: () => void): void;
}
declare var AbortSignal: { timeout(ms: number): AbortSignal };
interface AbortController {
  readonly signal: AbortSignal;
  abort(reason?: unknown): void;
}
declare var AbortController: { new (): AbortController };

interface Timer {
  refresh(): void;
}
declare function setTimeout(callback: () => void, ms: number): Timer;
declare function setImmediate(callback: () => void): void;
declare function clearTimeout(timer?: Timer): void;
declare var console: { error(...what: unknown[]): void; log(...what: unknown[]): void };
declare var performance: { now(): number };
declare class TextDecoder {
  constructor(label?: string, options?: { fatal?: boolean; ignoreBOM?: boolean });
  decode(bytes: Uint8Array, options?: { stream?: boolean }): string;
}
declare var process: {
  env: Record<string, string | undefined>;
  geteuid?(): number;
  on(signal: string, listener: () => void): void;
  off(signal: string, listener: () => void): void;
};

declare module "node:events" {
  export function setMaxListeners(most: number, ...targets: AbortSignal[]): void;
}
declare module "node:crypto" {
  export function randomBytes(size: number): { toString(encoding: string): string };
}
declare module "node:fs" {
  export function existsSync(path: string): boolean;
}
declare module "node:path" {
  export function join(...parts: string[]): string;
}
declare module "node:net" {
  export interface Socket {
    readonly writableLength: number;
    readonly bytesRead: number;
    on(event: "close" | "end" | "drain", listener: () => void): void;
    on(event: "error", listener: (error: Error) => void): void;
    on(event: "data", listener: (chunk: Buffer) => void): void;
    once(event: string, listener: (value?: unknown) => void): void;
    write(data: Uint8Array): boolean;
    end(): void;
    destroy(): void;
    setNoDelay(on: boolean): void;
    setKeepAlive(on: boolean, ms: number): void;
  }
  export function connect(options: object): Socket;
}
declare module "node:tls" {
  export function connect(options: object): import("node:net").Socket;
}
