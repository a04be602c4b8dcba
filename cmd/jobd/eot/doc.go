// Package eot implements the messages of jobd: JSON arrays, each followed by the byte 0x04.
//
//	[0,{"no":7,"type":"poll","data":{"targets":["mail"]},"password":"…"}]   request
//	[1,{"no":7,"data":"ok"}]  or  [1,{"no":7,"error":"…"}]                  response
//	[2]                                                                     ping
//	[3]                                                                     pong
//
// Both ends of a connection may send all four kinds. Existing peers were written in languages with
// loose types, and they match on error texts. So the package accepts what those peers accept, and
// uses the same error texts.
//
// It does not deal with sockets, passwords or request types.
package eot
