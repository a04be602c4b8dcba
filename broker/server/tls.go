package server

import (
	"crypto/tls"
	"net"
	"time"

	"gloom/wire"
)

const (
	// handshakeTime is how long a TLS handshake may take.
	handshakeTime = 10 * time.Second
	// tlsIdle is about what an idle TLS connection takes in all, in bytes. All
	// together may take one part in tlsShare of MaxMemory.
	tlsIdle  = 70 << 10
	tlsShare = 8
)

// serveSecure serves a TLS connection.
func (s *Server) serveSecure(raw net.Conn, port wire.Port) {
	defer s.conns.Add(-1)
	defer raw.Close()
	if !s.secure.add(raw) {
		return
	}
	defer s.secure.remove(raw)
	nc := tls.Server(raw, s.certs.Config())
	late := s.hub.After(handshakeTime, func() { _ = raw.Close() })
	err := nc.Handshake()
	late.Stop()
	if err != nil {
		s.log.Info().Str("peer", remoteOf(raw)).Err(err).Msg("a TLS handshake failed")
		return
	}
	s.serveStream(nc, raw, port)
}
