#!/usr/bin/perl
# Reads apt-cache dumpavail on stdin, writes COPY text rows on stdout:
# package, version, section, installed_size, depends, description.
# Of several records of one package the first is taken.
use strict;
use warnings;

sub quote
{
	my ($text) = @_;
	return '\N' unless defined $text;
	$text =~ s/([\\\t\n\r])/{ "\\" => "\\\\", "\t" => "\\t", "\n" => "\\n", "\r" => "\\r" }->{$1}/ge;
	return $text;
}

sub array
{
	my ($text) = @_;
	return undef unless defined $text;
	return '{' . join(',', map { s/(["\\])/\\$1/gr =~ s/(.*)/"$1"/sr } split /\s*,\s*/, $text) . '}';
}

my %seen;
$/ = '';
while (my $record = <STDIN>)
{
	my (%field, $name);
	for my $line (split /\n/, $record)
	{
		if ($line =~ /^\s/) { $field{$name} .= "\n$line" if defined $name }
		elsif ($line =~ /^([^:\s]+):\s*(.*)$/) { $name = $1; $field{$name} = $2 }
	}
	next unless defined $field{Package} && !$seen{ $field{Package} }++;
	my $size = $field{'Installed-Size'};
	undef $size unless defined $size && $size =~ /^\d+$/;
	print join("\t",
		map { quote($_) } $field{Package}, $field{Version}, $field{Section}, $size,
		array($field{Depends}), $field{Description} // $field{'Description-en'}), "\n";
}
