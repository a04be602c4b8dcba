package wire

// Key is a top-level key with a meaning in the protocol. Other keys are ignored,
// whatever their values.
type Key uint8

// Requests and replies have these keys.
const (
	KeyAction Key = iota
	KeyID
	KeyType
	KeyBody
	KeyPriority
	KeyOK
	KeyError
	KeyReason
	KeyCause
	KeyDelayMS
	KeyTimeoutMS
	KeyRetries
	KeyBackoffMS
	KeyExpiresMS
	KeyDetach
	KeyAck
	KeyProgress
	KeyPrefetch
	KeyCancel
	KeyRetry
	KeyToken
	KeyClient
	KeyHeartbeatMS
	KeyServer
	KeyLimits
	KeyTypes
	KeyExcept
	KeyGroups
	KeyAgeMS
	KeyKeepMS
	KeyHeaders
	KeyState
	KeyMaxFrame // the keys of limits begin here
	KeyMaxFrameOut
	KeyMaxID
	KeyMaxPrefetch
	KeyMaxTypes
	numKeys
)

// keyBufLen is one byte more than the longest key has, so that a longer key does not look like
// a known one.
const keyBufLen = 16

var keyNames = [numKeys]string{
	"action", "id", "type", "body", "priority", "ok", "error", "reason", "cause",
	"delay_ms", "timeout_ms", "retries", "backoff_ms", "expires_ms", "detach",
	"ack", "progress", "prefetch", "cancel", "retry", "token", "client",
	"heartbeat_ms", "server", "limits", "types", "except", "groups", "age_ms",
	"keep_ms", "headers", "state", "max_frame", "max_frame_out", "max_id", "max_prefetch",
	"max_types",
}

func (key Key) String() string {
	if key < numKeys {
		return keyNames[key]
	}
	return "none"
}

// lookupKey returns the Key with this name, or numKeys if the name has no meaning.
func lookupKey(name []byte) Key {
	switch string(name) {
	case "action":
		return KeyAction
	case "id":
		return KeyID
	case "type":
		return KeyType
	case "body":
		return KeyBody
	case "priority":
		return KeyPriority
	case "ok":
		return KeyOK
	case "error":
		return KeyError
	case "reason":
		return KeyReason
	case "cause":
		return KeyCause
	case "delay_ms":
		return KeyDelayMS
	case "timeout_ms":
		return KeyTimeoutMS
	case "retries":
		return KeyRetries
	case "backoff_ms":
		return KeyBackoffMS
	case "expires_ms":
		return KeyExpiresMS
	case "detach":
		return KeyDetach
	case "ack":
		return KeyAck
	case "progress":
		return KeyProgress
	case "prefetch":
		return KeyPrefetch
	case "cancel":
		return KeyCancel
	case "retry":
		return KeyRetry
	case "token":
		return KeyToken
	case "client":
		return KeyClient
	case "heartbeat_ms":
		return KeyHeartbeatMS
	case "server":
		return KeyServer
	case "limits":
		return KeyLimits
	case "types":
		return KeyTypes
	case "except":
		return KeyExcept
	case "groups":
		return KeyGroups
	case "age_ms":
		return KeyAgeMS
	case "keep_ms":
		return KeyKeepMS
	case "headers":
		return KeyHeaders
	case "state":
		return KeyState
	case "max_frame":
		return KeyMaxFrame
	case "max_frame_out":
		return KeyMaxFrameOut
	case "max_id":
		return KeyMaxID
	case "max_prefetch":
		return KeyMaxPrefetch
	case "max_types":
		return KeyMaxTypes
	}
	return numKeys
}
