package peer

// opening recognises HTTP and TLS by the first bytes of a connection. A web page can make a browser
// send any data to ports that trust this host, but only after an HTTP request line or inside a TLS
// handshake. Our clients begin with neither.
type opening struct {
	state openingState
	upper bool // the token has had only the letters A to Z so far
}

type openingState uint8

const (
	atStart  openingState = iota
	inTLS                 // perhaps a record of a handshake
	inToken               // perhaps a method
	inTarget              // perhaps the rest of a request line
	ownMessage
	foreign
)

// foreign reads the next bytes and reports whether the connection speaks HTTP or TLS. It recognises
// a method of capital letters by the space after it, and any other method by the path that follows.
func (o *opening) foreign(p []byte) bool {
	for _, c := range p {
		if o.state >= ownMessage {
			break
		}
		o.next(c)
	}
	return o.state == foreign
}

func (o *opening) next(c byte) {
	capital := 'A' <= c && c <= 'Z'
	switch {
	case o.state == atStart && c == 0x16:
		o.state = inTLS
	case o.state == atStart && isToken(c):
		o.state, o.upper = inToken, capital
	case o.state == inToken && isToken(c):
		o.upper = o.upper && capital
	case o.state == inToken && c == ' ' && !o.upper:
		o.state = inTarget
	case o.state == inTLS && c == 3, o.state == inToken && c == ' ', o.state == inTarget && c == '/':
		o.state = foreign
	default:
		o.state = ownMessage
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
