// Package probe tests the page as a person uses it, with the real gloomd and a real Chromium. It
// looks only at things that a person perceives: roles and names, visible text, title, address,
// keys. It knows no class, id or file of the page.
package probe
