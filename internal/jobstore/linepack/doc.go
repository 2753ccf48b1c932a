// Package linepack writes lines of text by columns, in the way of log archives, so
// that a compressor makes less of them than of the text itself.
//
// What programs log are a few sentences with numbers in them. A line is taken apart
// into its template, which is the line with a gap for each number, and what stood in
// the gaps. Templates are written once; then which of them each line has; then, gap
// by gap, the values of all lines of a template: numbers without a pattern take the
// bytes that they need, and those that grow or stay the same hardly any.
//
// # Format
//
//	length of all texts
//	column: number of lines of each text
//	number of templates; of each its length and itself, a NUL for each gap
//	column: template of each line
//	of each gap of each template: 0 and the values, a newline after each,
//	    or 1, the width to which they are padded with zeros, and a column
//
// A column is its kind (0 the numbers, 1 the first one and the steps between them),
// how many bytes the largest takes, the highest byte of each, the next one of each,
// and so on. Other numbers are varints. A text's last line may lack its newline.
//
// Text without such sentences grows by this. Whoever compresses it tries both.
package linepack
