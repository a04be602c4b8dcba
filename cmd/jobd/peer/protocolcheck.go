package peer

// protocolCheck recognises HTTP and TLS by the first bytes of a connection. A web page can make a
// browser send any data to ports that trust this host, but only after an HTTP request line or
// inside a TLS handshake. Our clients begin with neither.
type protocolCheck struct {
	state    checkState
	allUpper bool // the token has had only the letters A to Z so far
}

// checkState says what the bytes so far may belong to.
type checkState uint8

const (
	checkStart  checkState = iota
	checkTLS               // perhaps a record of a handshake
	checkMethod            // perhaps a method
	checkTarget            // perhaps the rest of a request line
	ownProtocol
	foreignProtocol
)

// isForeign reads the next bytes and reports whether the connection speaks HTTP or TLS. It recognises
// a method of capital letters by the space after it, and any other method by the path that follows.
func (o *protocolCheck) isForeign(p []byte) bool {
	for _, c := range p {
		if o.state >= ownProtocol {
			break
		}
		o.advance(c)
	}
	return o.state == foreignProtocol
}

func (o *protocolCheck) advance(c byte) {
	capital := 'A' <= c && c <= 'Z'
	switch {
	case o.state == checkStart && c == 0x16:
		o.state = checkTLS
	case o.state == checkStart && isToken(c):
		o.state, o.allUpper = checkMethod, capital
	case o.state == checkMethod && isToken(c):
		o.allUpper = o.allUpper && capital
	case o.state == checkMethod && c == ' ' && !o.allUpper:
		o.state = checkTarget
	case o.state == checkTLS && c == 3, o.state == checkMethod && c == ' ', o.state == checkTarget && c == '/':
		o.state = foreignProtocol
	default:
		o.state = ownProtocol
	}
}

// isToken reports whether a byte may occur in a method (RFC 9110, section 5.6.2).
func isToken(c byte) bool {
	switch {
	case '0' <= c && c <= '9', 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z':
		return true
	}
	for _, other := range []byte("!#$%&'*+-.^_`|~") {
		if c == other {
			return true
		}
	}
	return false
}
