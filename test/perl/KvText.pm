package KvText;
# What the tests of texts and of the source's structure share (docs.pl, hints.pl, messages.pl,
# rooms.pl, words.pl): they run in the root of their checkout, read files as UTF-8, and print results of TAP.
use strict;
use warnings;
use Exporter 'import';
use FindBin;

our @EXPORT = qw(slurp result ok_if_none);

chdir "$FindBin::RealBin/.." or die "$FindBin::RealBin/..: $!";
my $n = 0;

sub slurp { my ($file) = @_; open my $f, '<:utf8', $file or die "$file: $!"; local $/; return <$f> }

# One result; returns its number.
sub result
{
	my ($good, $what) = @_;
	$n++;
	print $good ? 'ok' : 'not ok', " $n - $what\n";
	return $n;
}

# A result that is good if nothing is wrong; what is wrong is printed before it.
sub ok_if_none
{
	my ($what, @wrong) = @_;
	print "# $_\n" for @wrong;
	return result(!@wrong, $what);
}

1;
