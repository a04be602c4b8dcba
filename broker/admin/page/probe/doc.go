// Package probe tries the page as a person has it: the real gloomd, a real Chromium,
// and of the page only what is perceived: roles and names, visible text, title,
// address, keys. It knows no class, id or file of it.
package probe
