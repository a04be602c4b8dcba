// Package eot has the messages of jobd: JSON arrays, each ended by the byte 0x04.
//
//	[0,{"no":7,"type":"poll","data":{"targets":["mail"]},"password":"…"}]   request
//	[1,{"no":7,"data":"ok"}]  or  [1,{"no":7,"error":"…"}]                  response
//	[2]                                                                     ping
//	[3]                                                                     pong
//
// Both ends of a connection may send all four kinds. Existing peers were written in
// languages that accept much as an object or an integer, and they match on error texts.
// So the package judges messages as those peers do and answers in the same words.
//
// It knows no sockets, no passwords and no request types.
package eot
