#!/usr/bin/perl
# Promise: each hint of the source is in test/data/hints.tsv, with the situation in which it is given and why it is
# safe to follow there, and no other is; and none asks for what destroys rows without saying when that is right.
use strict;
use warnings;
use File::Find;
use FindBin;
use lib "$FindBin::RealBin/perl";
use KvText;

my $table = 'test/data/hints.tsv';

# The formats among the arguments of a call that begins at an offset: literals before the first comma, those of
# PRI macros between them left out.
sub formats
{
	my ($text, $at) = @_;
	my ($depth, @found, $open) = (0);
	pos($text) = $at;
	while ($text =~ /\G(?:\s+|"((?:[^"\\]|\\.)*)"|([(),])|([^\s"(),]+))/gcs)
	{
		if (defined $1) { $open ? ($found[-1] .= $1) : push @found, $1; $open = 1; next }
		next if defined $3 && $3 =~ /^[A-Z_0-9]+$/ && $open;
		$open = 0 if defined $2 || defined $3;
		next unless defined $2;
		$depth++ if $2 eq '(';
		last if $2 eq ')' && --$depth == 0;
		last if $2 eq ',' && $depth == 1;
	}
	return map { s/\\(["\\])/$1/gr } @found;
}

my %source;
find({ no_chdir => 1, wanted => sub {
	return unless /\.[ch]$/;
	my $text = slurp($_) =~ s{/\*.*?\*/}{}gsr;
	while ($text =~ /\b(?:errhint|errhint_internal|errhint_plural|GUC_check_errhint)\s*(?=\()/g)
	{
		my @formats = formats($text, pos $text);
		push @{$source{$_}}, $File::Find::name for @formats ? @formats : ("a hint of $_ that is no literal");
	}
} }, 'src');
%source or die "the source has no hint\n";

my (%listed, @malformed, @twice);
for my $line (split /\n/, slurp($table))
{
	next if $line =~ /^#/ || $line eq '';
	my @fields = split /\t/, $line, -1;
	push @malformed, $line if @fields != 3 || grep { !/\S/ } @fields;
	push @twice, $fields[0] if $listed{$fields[0]}++;
}
ok_if_none("$table: three fields in each line", @malformed);
ok_if_none('each hint once', @twice);
ok_if_none('it has every hint of the source', map { "$source{$_}[0]: $_" } grep { !$listed{$_} } sort keys %source);
ok_if_none('and no other', grep { !$source{$_} } sort keys %listed);

# What may be lost by it: then the hint has the condition under which nothing is.
my $destroys = qr/\b(?:TRUNCATE|DELETE|DROP (?!tablespace\b)|drop|delete|remove|erase|unlink|overwrite|move .* away)\b/;
my %conditional = map { $_ => 1 } grep { /\bonly if\b|\bmakes the table usable here, and empty\b/ } keys %source;
my $n = ok_if_none('none destroys rows unless it says when', grep { /$destroys/ && !$conditional{$_} } sort keys %source);
print "1..$n\n";
