// Package pages serves the HTML pages. For a page X, X.go has its loader, its view model and
// its forms, and X.html its templates. parts.html and parts.go have what several pages show,
// layout.html the frame. stream/ has the templates that streams draw in another way.
package pages
