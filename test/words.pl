#!/usr/bin/perl
# Promise: texts use the trade's words, in sentences that can be read once.  Counts what should not be there, in
# the documents and in the source, and fails where there is more of it than test/data/words.tsv allows.
# Limits only fall: who removes some lowers the limit.
#
#   test/words.pl [--list KIND]     the places of one kind
use strict;
use warnings;
use utf8;
use open qw(:std :utf8);
use File::Find;
use FindBin;
use lib "$FindBin::RealBin/perl";
use KvText;

my ($list) = @ARGV > 1 && $ARGV[0] eq '--list' ? $ARGV[1] : ();
my %places;
sub note { my ($kind, $place) = @_; push @{$places{$kind}}, $place; return }

my $idiom = qr{\b(?:besides?|behind|by\ (?:it|them)sel(?:f|ves)|by\ hand|anew|meanwhile|likewise|all\ the\ same|for\ want\ of
	|nobody|somebody|anybody|lies|lie)\b|(?:^|[.:;]\ )(?:Who|Whoever|What|That\ which)\ [a-z]}xi;

# ---- documents ----

my (@documents, @source);
find({ no_chdir => 1, preprocess => sub { grep { !/^\.\w/ } @_ }, wanted => sub { push @documents, s{^\./}{}r if /\.md$/ && !m{^\./(?:\.|bench/results)} } }, '.');
find({ no_chdir => 1, wanted => sub { push @source, $_ if /\.[ch]$/ } }, 'src');

# A document's paragraphs: neither code nor tables, without the targets of links.
sub paragraphs
{
	my ($text) = @_;
	$text =~ s/^```.*?^```$//gms;
	$text =~ s/<!--.*?-->//gs;
	$text =~ s/!?\[([^\]]*)\]\([^)]*\)/$1/g;
	my @found = ('');
	for my $line (split /\n/, $text)
	{
		if ($line =~ /^\s*$|^#|^\|/) { push @found, '' }
		elsif ($line =~ s/^\s*(?:[-*+]|\d+\.) +//) { push @found, $line }
		else { $found[-1] .= " $line" =~ s/ +/ /gr }
	}
	return grep { /\w/ } @found;
}

for my $document (sort @documents)
{
	my $text = slurp($document);
	for my $paragraph (paragraphs($text))
	{
		my $plain = $paragraph =~ s/`[^`]*`/x/gr;
		note(idioms => "$document: $1") while $plain =~ /(.{0,30}$idiom.{0,20})/g;
		for my $sentence (split /(?<=[.!?])["')*]*\s+(?=[^a-z])/, $plain)
		{
			my $words = () = $sentence =~ /[\w'’-]+/g;
			note(sentences => "$document: $words words: " . substr($sentence, 0, 60)) if $words > 40;
		}
	}
	my ($n, $code) = (0, 0);
	for my $line (split /\n/, $text)
	{
		$n++;
		$code = !$code if $line =~ /^```/;
		note(document_lines => "$document:$n") if !$code && length($line) > 100 && $line !~ /^\s*\||^\s*\[|\]\(https?:/;
	}
}
# Words of the users' documents are runs of [\w'’-] with a letter or digit, in tables, too; neither those of blocks of
# code, comments and pictures nor targets of links count.
for my $document (grep { m{^(?:README\.md|docs/tutorial.*|docs/(?:how-to|reference|explanation)/.*)$} } sort @documents)
{
	my $text = slurp($document);
	$text =~ s/^\s*```.*?^\s*```$//gms;
	$text =~ s/<!--.*?-->//gs;
	$text =~ s/!\[[^\]]*\]\([^)]*\)//g;
	$text =~ s/\]\([^)]*\)/]/g;
	note(user_words => "$document: $_") for grep { /\w/ } $text =~ /[\w'’-]+/g;
}
my $readme = () = slurp('README.md') =~ /\n/g;
note(readme_lines => "line $_") for 121 .. $readme;

# ---- source ----

for my $file (sort @source)
{
	my $text = slurp($file);
	my $n = 0;
	for my $line (split /\n/, $text)
	{
		$n++;
		my $width = 0;
		$width += $_ eq "\t" ? 4 - $width % 4 : 1 for split //, $line;
		note(source_lines => "$file:$n") if $width > 100;
	}
	while ($text =~ m{/\*(.*?)\*/}gs)
	{
		my ($comment, $at) = ($1, 1 + (substr($text, 0, $-[0]) =~ tr/\n//));
		note(comment_ellipses => "$file:$at") if $comment =~ /^[\s*]*(?:…|\.\.\.)/;
		note(comment_idioms => "$file:$at: $1") while $comment =~ /($idiom)/g;
	}
}

# ---- limits ----

if ($list) { print "$_\n" for @{$places{$list} // []}; exit }
for my $row (split /\n/, slurp('test/data/words.tsv'))
{
	next if $row =~ /^#/;
	my ($kind, $limit, $what) = split /\t/, $row;
	my $count = @{$places{$kind} // []};
	print "# $count, of $limit; test/words.pl --list $kind\n" if $count > $limit;
	print "# $kind: lower the limit in test/data/words.tsv to $count\n" if $count < $limit;
	result($count <= $limit, $what);
}
