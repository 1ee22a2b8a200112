#!/usr/bin/perl
# Promise: the messages of the source follow PostgreSQL's style guide so far as a pattern can tell, and use none of the
# words that kvfdw has given up; each message that the users' documents quote is one of the source; and these documents
# have each FATAL, PANIC and WARNING, and each ERROR about the server's state that has no hint.
use strict;
use warnings;
use utf8;
use open qw(:std :utf8);
use File::Find;
use FindBin;
use lib "$FindBin::RealBin/perl";
use KvText;

# ---- the source ----

# The text of a call's arguments, whose parenthesis opens at an offset.
sub arguments
{
	my ($text, $at) = @_;
	pos($text) = $at;
	my $depth = 0;
	while ($text =~ /\G(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)'|[^"'()]+|([()]))/gcs)
	{
		next unless defined $1;
		$depth += $1 eq '(' ? 1 : -1;
		return substr($text, $at, pos($text) - $at) unless $depth;
	}
	die "a call does not end\n";
}

# The literals of a call, those that stand side by side joined.
sub literals
{
	my ($call) = @_;
	my (@found, $open);
	while ($call =~ /\G(?:\s+|"((?:[^"\\]|\\.)*)"|([A-Z_0-9]+)|(.))/gcs)
	{
		if (defined $1) { $open ? ($found[-1] .= $1) : push @found, $1; $open = 1 }
		elsif (defined $2) { if ($open && $2 =~ /^(?:PRI|U?INT64_FORMAT)/) { $found[-1] .= '%u' } else { $open = 0 } }
		elsif (defined $3) { $open = 0 }
	}
	return map { s/\\(["\\])/$1/gr =~ s/\\n//gr } @found;
}

my (@reports, %part);
find({ no_chdir => 1, wanted => sub {
	return unless /\.[ch]$/;
	my $file = $_;
	my $text = slurp($file) =~ s{/\*.*?\*/}{}gsr;
	$text =~ s/^#ifdef KVFDW_FAULTS\n.*?^#endif\n//gms;
	while ($text =~ /\b(errmsg|errdetail|errhint|GUC_check_errdetail)(?:_internal|_plural)?\s*(?=\()/g)
	{
		my ($kind, $call) = ($1, arguments($text, pos $text));
		push @{$part{$kind eq 'GUC_check_errdetail' ? 'errdetail' : $kind}}, map { [ $file, $_ ] } grep { / / } literals($call);
	}
	while ($text =~ /\bereport\s*(?=\()/g)
	{
		my $call = arguments($text, pos $text);
		my ($level) = $call =~ /^\(\s*(.*?),\s*\(/s;
		my @codes = $call =~ /\bERRCODE_(\w+)/g;
		my @messages;
		while ($call =~ /\berrmsg(?:_internal)?\s*(?=\()/g) { push @messages, grep { / / } literals(arguments($call, pos $call)) }
		push @reports, map { { file => $file, level => $level // '', codes => [ @codes ], message => $_, hint => scalar($call =~ /\berrhint|refusal_hint/) } } @messages;
	}
	# one row of the documents is for all verbs, and elog is for what a user does not see
	while ($text =~ /\bkv_io_error\s*(?=\()/g)
	{
		push @reports, map { { file => $file, level => '', codes => [], message => "could not $_ file \"%s\": %m" } } literals(arguments($text, pos $text) =~ s/^.*,//sr);
	}
	while ($text =~ /\belog\s*(?=\()/g)
	{
		push @reports, map { { file => $file, level => '', codes => [], message => $_ } } literals(arguments($text, pos $text));
	}
} }, 'src');
@reports > 100 or die "the source has few messages\n";

# ---- style ----

my @errmsg = @{$part{errmsg}};
my @sentences = (@{$part{errdetail}}, @{$part{errhint}});
sub list { return map { "$_->[0]: $_->[1]" } @_ }
ok_if_none('a primary message does not end with a stop', list(grep { $_->[1] =~ /\.$/ } @errmsg));
ok_if_none('... and begins with a small letter', list(grep { $_->[1] =~ /^[A-Z]/ && $_->[1] !~ /^(?:WAL|Unix-domain|ON CONFLICT)/ } @errmsg));
ok_if_none('a detail and a hint are sentences', list(grep { $_->[1] !~ /[.;?]$/ && $_->[1] !~ /%s$/ || $_->[1] =~ /^[a-z]/ && $_->[1] !~ /^(?:kvfdw|memcached|pg_)/ } @sentences));
ok_if_none('settings are quoted', list(grep { $_->[1] =~ /(?<!["\w.-])(?<!-c )(?:kvfdw\.[a-z]\w+|max_worker_processes)\b(?!")/ && $_->[1] !~ /kvfdw\.(?:dump|id)\b/ } @errmsg, @sentences));
my $given_up = qr/\b(?:merge slot|(?<!replication )slots?(?! for)|delta|freeze|frozen|settl\w+|spill\w*|chunk|extent|barrier process|anew|lies?|beside|behind|nobody|somebody|meanwhile|likewise|by itself|by hand)\b/i;
ok_if_none('no word that was given up', list(grep { $_->[1] =~ $given_up && $_->[1] !~ /io_uring|COLLATE/ } @errmsg, @sentences));
ok_if_none('a table is named, not numbered', list(grep { $_->[1] =~ /\b(?:table|database|store) %u/ } @errmsg));

# ---- the users' documents ----

# Messages of PostgreSQL and of the C library that they quote.
my $others = qr/^(?:Custom resource manager|resource manager with ID|No space left|Cannot allocate|Operation not permitted|Function not implemented|requested WAL segment|permission denied for|server closed)/;

# What a document says for a message: … for anything, N for a number, a name for %s.
sub pattern
{
	my ($quoted) = @_;
	my $open = $quoted =~ /…$/;
	$quoted =~ s/: (?:No space left on device|Input\/output error|Too many open files)$/: …/;
	my $pattern = join '', map {
		$_ eq '…' ? '.*' : /^(?:N|[\d,]+)$/ ? '(?:%[-.0-9]*[lz]*[dufX]|\d+)' : /^"(.*)"$/ ? ($1 =~ /…/ ? '(?:"[^"]*"|%s)' : '(?:' . quotemeta($_) =~ s/\bN\b/(?:N|%[du])/r . '|"%s")') : quotemeta
	} grep { length } split /(…|"[^"]*"|\bN\b|\b\d[\d,]*\b)/, $quoted;
	$pattern =~ s/foreign\\ table\\ \.\*|foreign\\ table\\ \(\?:"\[\^"\]\*"\|%s\)/(?:foreign table "%s"|foreign table "%s.%s"|%s)/g;
	return qr/^$pattern$/;
}

my @quoted;
for my $document (glob('docs/reference/messages.md docs/how-to/*.md docs/reference/memcached-protocol.md'))
{
	my $column;
	for my $line (split /\n/, slurp($document))
	{
		if ($line !~ /^\|/) { undef $column; next }
		my @cells = split /\s*(?<!\\)\|\s*/, $line =~ s/^\|\s*//r;
		if (!defined $column)
		{
			($column) = grep { $cells[$_] =~ /\b(?:Message|You see|Symptom)\b/ } 0 .. $#cells;
			$column //= -1;
		}
		next if $column < 0 || $line =~ /^\| ---/;
		push @quoted, map { [ $document, $_ ] } grep { / / && !/^(?:[A-Z][A-Z]+ |\w+$|\$|\.)/ } $cells[$column] =~ /`([^`]+)`/g;
	}
}
@quoted or die "the documents quote no message\n";
my (%known, @unknown);
for my $quote (@quoted)
{
	my $pattern = pattern($quote->[1]);
	my @found = grep { $_->{message} =~ $pattern } @reports;
	$known{$_->{message}} = 1 for @found;
	push @unknown, "$quote->[0]: $quote->[1]" unless @found || $quote->[1] =~ $others;
}
ok_if_none('each message that the documents quote is one of the source', @unknown);

# A state of the server, not of a statement.
my $state = qr/^(?:OBJECT_NOT_IN_PREREQUISITE_STATE|DATA_CORRUPTED|IO_ERROR|DISK_FULL|INSUFFICIENT_RESOURCES|OUT_OF_MEMORY|CONFIGURATION_LIMIT_EXCEEDED|PROGRAM_LIMIT_EXCEEDED)$/;
my %untold;
for my $report (@reports)
{
	next if $known{$report->{message}} || $report->{file} =~ m{/io/fault\.c$} || $report->{message} =~ /^(?:could not generate random numbers|out of memory|canceling statement|terminating connection|invalid data in file|invalid list syntax|could not %s file|manifest "%s" %s|file "%s" is %s|"%s": table contains)/;
	my $always = $report->{level} =~ /\b(?:FATAL|PANIC|WARNING|elevel)\b/;
	my $plain = $report->{level} =~ /\bERROR\b/ && !$report->{hint} && grep { /$state/ } @{$report->{codes}};
	$untold{"$report->{file}: $report->{message}"} = 1 if $always || $plain;
}
ok_if_none('they have each that tells of a state, if it has no hint or no ERROR', sort keys %untold);
print "1..8\n";
